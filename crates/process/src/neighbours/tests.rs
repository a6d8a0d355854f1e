//! Neighbours on one simulated device. Two that live in one process have a slot each, and locks of
//! their own, as two processes do.

mod figures;
mod hostile;
mod killed;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use drystone::driver::{Call, Driver, Stream};
use drystone::{AllocateError, Allocation, Allocator, LooseHandle, Options, StreamId};
use drystone_sim::{SimConfig, SimDevice};

use super::board::Board;
use super::{Table, inbox};

const MIB: u64 = 1 << 20;
const DEVICE_BYTES: u64 = 1024 * MIB;
/// Nobody waits so long unless something is wrong: tests share their processors with others.
const WAIT: Duration = Duration::from_secs(20);

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("drystone-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn board(&self) -> PathBuf {
        self.0.join("board")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One of several processes, as it seems, on a device.
struct Process {
    allocator: Allocator,
    stream: StreamId,
    table: &'static Table,
}

impl Process {
    fn new(device: &Arc<dyn Driver>, folder: &Folder, options: &Options) -> Self {
        let allocator = Allocator::new(Arc::clone(device), options).unwrap();
        let stream = allocator.add_stream(Stream::DEFAULT).unwrap();
        // Who joins or leaves may not run meanwhile.
        let join = || (0..100).find_map(|_| Board::join_at(&folder.board())).unwrap();
        let board = options.neighbours.map(|_| join());
        let table = Table::with(board, options, device.info().total_bytes);
        table.begin(&allocator);
        Self { allocator, stream, table }
    }

    fn allocate(&self, mib: u64) -> Result<Allocation, AllocateError> {
        self.allocator.allocate(self.stream, mib * MIB)
    }

    fn held(&self) -> u64 {
        self.allocator.stats().all.reserved_bytes.current / MIB
    }
}

fn simulated() -> SimDevice {
    SimDevice::new(SimConfig { total_bytes: DEVICE_BYTES, ..SimConfig::default() })
}

fn device() -> Arc<dyn Driver> {
    Arc::new(simulated())
}

fn options() -> Options {
    Options::default().with_neighbours(Some(WAIT))
}

fn on_one_device<const N: usize>(folder: &Folder) -> (SimDevice, [Process; N]) {
    let device = simulated();
    let driver: Arc<dyn Driver> = Arc::new(device.clone());
    (device, [(); N].map(|()| Process::new(&driver, folder, &options())))
}

fn processes<const N: usize>(folder: &Folder) -> [Process; N] {
    on_one_device(folder).1
}

#[test]
fn a_refused_request_gets_what_a_neighbour_holds_unused() {
    let folder = Folder::new("given");
    let [first, second] = processes(&folder);
    drop(first.allocate(768).unwrap());
    assert_eq!(first.held(), 768);
    let block = second.allocate(512).unwrap();
    assert_eq!(block.bytes(), 512 * MIB);
    // No more than was wished: 256 MiB were free.
    assert_eq!(first.held(), 512);
    let [given, taken] = [first.table.exchanges(), second.table.exchanges()];
    assert_eq!((given.given_bytes, given.given, given.taken), (256 * MIB, 1, 0));
    assert_eq!((taken.taken_bytes, taken.taken, taken.given), (256 * MIB, 1, 0));
    assert_eq!(taken.last[0].process, std::process::id());
    // And the other way round.
    drop(block);
    let _block = first.allocate(800).unwrap();
    assert_eq!((first.held() + second.held()).min(1024), first.held() + second.held());
    first.table.leave();
    second.table.leave();
    assert!(!folder.board().exists(), "the last one takes it along");
}

#[test]
fn what_neighbours_have_in_use_is_refused_in_no_longer_than_the_wait_and_named() {
    let folder = Folder::new("in-use");
    let [first, second] = processes(&folder);
    let kept = first.allocate(600).unwrap();
    drop(first.allocate(100).unwrap());
    let (begun, held) = (Instant::now(), first.held());
    let Err(AllocateError::OutOfMemory(error)) = second.allocate(512) else { panic!("served") };
    assert!(begun.elapsed() < WAIT);
    assert_eq!(first.held(), held, "it would not do, so it is not given");
    let who = &error.neighbours[0];
    assert_eq!((who.held_bytes, who.unused_bytes), (held * MIB, (held - 600) * MIB));
    let told = format!("Process {} (", std::process::id());
    let message = error.to_string();
    let figures = format!("holds {held}.00 MiB, {}.00 MiB of it unused.", held - 600);
    assert!(message.contains(&told) && message.contains(&figures), "{message}");
    drop(kept);
}

#[test]
fn what_one_that_does_not_answer_has_in_use_is_not_counted_on() {
    let folder = Folder::new("silent");
    let [first, second] = processes(&folder);
    let silent = Board::join_at(&folder.board()).unwrap();
    silent.own().tell(700 * MIB, 0);
    let kept = first.allocate(800).unwrap();
    drop(first.allocate(100).unwrap());
    let held = first.held();
    let Err(AllocateError::OutOfMemory(_)) = second.allocate(512) else { panic!("served") };
    assert_eq!(first.held(), held, "it would not do, so it is not given");
    drop(kept);
}

#[test]
fn whoever_was_given_memory_of_late_is_asked_last() {
    let folder = Folder::new("fair");
    let [first, second, third] = processes(&folder);
    drop(first.allocate(512).unwrap());
    drop(second.allocate(448).unwrap());
    // The first has been idle for longer, and gives.
    drop(third.allocate(256).unwrap());
    assert_eq!([first.held(), second.held(), third.held()], [320, 448, 256]);
    // The third was given some just now: the second gives, though it grew before the third.
    drop(first.allocate(640).unwrap());
    assert_eq!(third.held(), 256);
    assert_eq!(second.held(), 128);
    // It is asked where all others have been.
    let _all = first.allocate(1000).unwrap();
}

/// However they come together, none takes what would serve another and not itself.
#[test]
fn of_several_that_lack_memory_at_once_as_many_are_served_as_it_does_for() {
    let folder = Folder::new("several");
    let [giver, one, two, three] = processes(&folder);
    for round in 0..6 {
        drop(giver.allocate(900).unwrap());
        let start = std::sync::Barrier::new(3);
        let served = std::thread::scope(|scope| {
            let asking = [&one, &two, &three].map(|process| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    process.allocate(400).ok()
                })
            });
            let blocks = asking.map(|asked| asked.join().unwrap());
            blocks.iter().flatten().count()
        });
        assert_eq!(served, 2, "round {round}");
        for process in [&one, &two, &three] {
            process.allocator.trim().unwrap();
        }
    }
}

/// A phase that grows asks a few times, and not at each request.
#[test]
fn who_grows_on_wishes_for_as_much_again_as_it_was_given_and_no_more_than_a_sixteenth() {
    let folder = Folder::new("grows");
    let [first, second] = processes(&folder);
    // In small handles.
    let all: Vec<_> = (0..64).map(|_| first.allocate(16).unwrap()).collect();
    drop(all);
    let one = second.allocate(16).unwrap();
    assert_eq!((first.held(), second.held()), (1008, 16), "what lacks, and no more");
    let mut blocks: Vec<_> = (0..40).map(|_| second.allocate(16).unwrap()).collect();
    let taken = second.table.exchanges();
    assert!(taken.taken <= 14, "asked {} times", taken.taken);
    assert!(taken.taken_bytes <= (41 * 16 + 64) * MIB, "{} MiB", taken.taken_bytes / MIB);
    // What is beyond goes only as far as there is some, and serves who asks next.
    blocks.push(one);
    let rest = second.allocate(1024 - 41 * 16).unwrap();
    assert_eq!(first.held(), 0);
    drop((rest, blocks));
}

/// What goes from process to process is not created again.
#[test]
fn what_a_neighbour_gives_comes_as_it_is() {
    let folder = Folder::new("as-it-is");
    let (device, [first, second]) = on_one_device(&folder);
    drop(first.allocate(1024).unwrap());
    let before = device.bytes_of(Call::Create);
    let block = second.allocate(900).unwrap();
    assert_eq!(device.bytes_of(Call::Create), before);
    assert_eq!(first.held() + second.held(), 1024);
    drop(block);
    for process in [&first, &second, &first] {
        drop(process.allocate(900).unwrap());
        assert!(first.held() + second.held() <= 1024);
    }
}

/// As one that loads data.
#[test]
fn a_forked_child_keeps_none_of_what_was_given() {
    let folder = Folder::new("forked");
    let (device, [first, second]) = on_one_device(&folder);
    drop(first.allocate(1024).unwrap());
    drop(second.allocate(900).unwrap());
    // SAFETY: the child does nothing.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            // SAFETY: waits.
            unsafe { libc::pause() };
        }
    }
    // What it has until it has closed that.
    std::thread::sleep(Duration::from_millis(50));
    let trimmed = [&first, &second].map(|process| process.allocator.trim().is_ok());
    let left = device.physical_bytes();
    // SAFETY: the child of above, which nobody has waited for.
    unsafe { libc::kill(child, libc::SIGKILL) };
    // SAFETY: the same; its status is for nobody.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    assert_eq!((trimmed, left), ([true; 2], 0));
}

#[test]
fn what_a_library_is_refused_goes_back_to_the_device() {
    let folder = Folder::new("library");
    let (device, [first, second]) = on_one_device(&folder);
    drop(first.allocate(1024).unwrap());
    assert!(second.allocator.ask_neighbours(100 * MIB) >= 100 * MIB);
    assert!(device.physical_bytes() <= DEVICE_BYTES - 100 * MIB);
    assert_eq!(second.held(), 0);
}

/// A giver may be slow, and a sender anything but a neighbour.
#[test]
fn what_comes_uncalled_for_goes_back_to_the_device() {
    let folder = Folder::new("uncalled");
    let (device, [first, second]) = on_one_device(&folder);
    drop(first.allocate(1024).unwrap());
    drop(second.allocate(64).unwrap());
    let slot = second.table.board.as_ref().unwrap().own();
    let inbox = slot.inbox.load(Ordering::Relaxed);
    assert_ne!(inbox, 0);
    let gift = first.allocator.give_to_neighbours(256 * MIB, true, WAIT);
    let (handles, held) = (gift.handles, first.held() + second.held());
    assert_eq!(handles.iter().map(|one| one.bytes).sum::<u64>(), gift.bytes);
    let null = || std::fs::File::open("/dev/null").unwrap().into();
    let wrong = LooseHandle { descriptor: null(), bytes: 64 * MIB };
    inbox::deliver(inbox, handles);
    inbox::deliver(inbox, vec![wrong]);
    slot.ring();
    let begun = Instant::now();
    while device.physical_bytes() > held * MIB {
        assert!(begun.elapsed() < WAIT, "{} MiB", device.physical_bytes() / MIB);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(second.table.exchanges().taken, 1);
    let all = second.allocate(1000).unwrap();
    drop(all);
}

/// What is left on the device is little, but what the neighbour would give is not.
#[test]
fn what_a_neighbour_gives_is_created_in_large_handles() {
    let folder = Folder::new("large");
    let device = SimDevice::new(SimConfig { total_bytes: 16 << 30, ..SimConfig::default() });
    let driver: Arc<dyn Driver> = Arc::new(device.clone());
    let [first, second] = [(); 2].map(|()| Process::new(&driver, &folder, &options()));
    drop(first.allocate((16 << 10) - 24).unwrap());
    let _first = second.allocate(32).unwrap();
    let before = device.calls_of(Call::Create);
    let _rest: Vec<_> = (0..10).map(|_| second.allocate(32).unwrap()).collect();
    let created = device.calls_of(Call::Create) - before;
    assert!(created <= 20, "320 MiB in {created} handles");
}

#[test]
fn what_is_kept_for_a_limit_is_asked_of_nobody() {
    let (folder, device) = (Folder::new("limit"), device());
    let first = Process::new(&device, &folder, &options());
    let limited = options().with_limit_bytes(100 * MIB);
    let second = Process::new(&device, &folder, &limited);
    drop(first.allocate(1024).unwrap());
    assert!(second.allocate(200).is_err());
    assert_eq!(first.held(), 1024);
    assert!(second.allocate(100).is_ok());
    // Whole handles, of a sixteenth of the device at most.
    assert!((1024 - 128..=1024 - 100).contains(&first.held()), "{}", first.held());
}

/// The last one takes the file along while the next one opens it.
#[test]
fn who_joins_while_others_leave_is_on_the_board_that_others_find() {
    let folder = Folder::new("leave");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..300 {
                    let board = Board::join_at(&folder.board()).unwrap();
                    assert!(board.is_found());
                    board.leave();
                }
            });
        }
    });
}

/// A device may refuse what it says to have: then the request ends as it would alone.
#[test]
fn a_device_that_refuses_what_it_has_is_not_asked_again_and_again() {
    let folder = Folder::new("ceiling");
    let total = SimConfig { total_bytes: DEVICE_BYTES, ..SimConfig::default() };
    let limited = SimConfig { process_limit_bytes: 300 * MIB, ..total };
    let [device, other] = [limited, SimConfig::default()].map(SimDevice::new);
    let looks = || device.calls_of(Call::SynchronizeDevice);
    let first = Process::new(&(Arc::new(other) as _), &folder, &Options::default());
    let second = Process::new(&(Arc::new(device.clone()) as _), &folder, &Options::default());
    drop(first.allocate(64).unwrap());
    let before = looks();
    assert!(second.allocate(400).is_err());
    assert!(looks() - before <= 8, "{} waits for the device", looks() - before);
}

/// What is said to be held is what the message of another's refusal names.
#[test]
fn what_a_refused_request_gave_back_is_held_on_the_board_no_more() {
    let folder = Folder::new("told");
    let config = SimConfig { total_bytes: DEVICE_BYTES, ..SimConfig::default() };
    let limited = SimConfig { process_limit_bytes: 300 * MIB, ..config };
    let device: Arc<dyn Driver> = Arc::new(SimDevice::new(limited));
    let first = Process::new(&device, &folder, &Options::default());
    let board = Board::join_at(&folder.board()).unwrap();
    let told_mib = || board.others().map(|(_, slot)| slot.held_bytes() / MIB).sum::<u64>();
    drop(first.allocate(64).unwrap());
    assert_eq!(told_mib(), 64);
    assert!(first.allocate(400).is_err());
    assert_eq!((first.held(), told_mib()), (0, 0));
}

#[test]
fn off_neither_asks_nor_gives() {
    let (folder, device) = (Folder::new("off"), device());
    let off = "neighbours:off".parse().unwrap();
    let [first, second] =
        [Options::default(), off].map(|options| Process::new(&device, &folder, &options));
    drop(first.allocate(1024).unwrap());
    assert!(second.allocate(100).is_err());
    drop(first);
    assert!(Table::join(&device.info(), &off).is_none());
}

#[test]
fn what_can_be_had_counts_what_neighbours_hold_unused() {
    let folder = Folder::new("available");
    let [first, second] = processes(&folder);
    let kept = first.allocate(256).unwrap();
    drop(first.allocate(512).unwrap());
    drop(second.allocate(64).unwrap());
    for process in [&first, &second] {
        assert_eq!(process.allocator.available().unwrap(), (1024 - 256) * MIB);
    }
    // And it can be had.
    let all = second.allocate(768).unwrap();
    assert_eq!(first.allocator.available().unwrap(), 0);
    drop((kept, all));
}

/// A program that repeats itself keeps what it uses; once it stops, all goes.
#[test]
fn what_nobody_has_used_for_long_goes_back_and_what_is_used_stays() {
    let (folder, device) = (Folder::new("idle"), device());
    let options = Options::default().with_neighbours(None).with_idle(Some(Duration::from_secs(1)));
    let process = Process::new(&device, &folder, &options);
    let kept = process.allocate(64).unwrap();
    let large = process.allocate(256).unwrap();
    drop(large);
    let calls = || process.allocator.stats().all.reserved_bytes.total;
    let (begun, mut used) = (Instant::now(), Instant::now());
    let mut after = None;
    while begun.elapsed() < Duration::from_millis(2500) {
        drop(process.allocate(32).unwrap());
        // Whoever did not run in between has not used it.
        after = after.filter(|_| used.elapsed() < Duration::from_millis(500));
        used = Instant::now();
        std::thread::sleep(Duration::from_millis(200));
        if begun.elapsed() > Duration::from_millis(2000) {
            assert_eq!(*after.get_or_insert_with(calls), calls(), "what is used is not given back");
        }
    }
    let begun = Instant::now();
    while process.held() > 64 {
        assert!(begun.elapsed() < WAIT, "{} MiB are held", process.held());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(process.held(), 64);
    assert!(process.table.exchanges().idle_bytes >= 256 * MIB);
    drop(kept);
}

/// It is not waited until the neighbour stops.
#[test]
fn a_neighbour_that_runs_gives_while_it_runs() {
    let folder = Folder::new("hits");
    let [first, second] = processes(&folder);
    drop(first.allocate(900).unwrap());
    drop(first.allocate(8).unwrap());
    let (hits, has_some) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_some.load(Ordering::Relaxed) {
                drop(first.allocate(8).unwrap());
                hits.fetch_add(1, Ordering::Relaxed);
            }
        });
        while hits.load(Ordering::Relaxed) < 1000 {
            std::thread::yield_now();
        }
        let block = second.allocate(512);
        has_some.store(true, Ordering::Relaxed);
        assert!(block.is_ok(), "{block:?}");
    });
}
