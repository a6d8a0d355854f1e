//! Eight processes on one device, one of which is killed at a time, and comes back: nobody is
//! refused memory that others hold unused, no wish of a process is lost, and the board stays whole.
//!
//! `DRYSTONE_TEST_SECONDS` says for how long; one is killed four times a second.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use drystone_sim::Harsh;

use super::*;

/// Says to this program that it is one of the processes, and where they meet.
const VARIABLE: &str = "DRYSTONE_TEST_NEIGHBOUR";
const SECONDS: u64 = 12;
const PROCESSES: usize = 8;
const KILLED_EVERY: Duration = Duration::from_millis(250);

/// What all have in use together is 70 % of the device at most: two large blocks, a small one for
/// each process, and the one of the test. What they would hold alone is 2.4 times the device.
const SHARED_BYTES: u64 = 2048 * MIB;
const LARGE_MIB: u64 = 500;
const LARGE_AT_ONCE: usize = 2;
const SMALL_MIB: u64 = 24;
const OWN_MIB: u64 = 256;

/// A process of its own on the device that all share.
fn process(folder: &Folder) -> (SimDevice, Process) {
    let shared = Some(folder.0.join("device"));
    let harsh = Harsh::ALL;
    let config = SimConfig { total_bytes: SHARED_BYTES, shared, harsh, ..SimConfig::default() };
    let device = SimDevice::new(config);
    let process = Process::new(&(Arc::new(device.clone()) as _), folder, &options());
    (device, process)
}

fn start(folder: &Folder, seed: usize) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "neighbours::tests::killed::one_of_them", "--ignored", "--nocapture"]);
    child.env(VARIABLE, &folder.0).env("DRYSTONE_TEST_SEED", seed.to_string());
    child.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// Written to by all, a line or a letter at a time: so it is whole, whoever is killed.
fn tally(folder: &Path, name: &str) -> File {
    OpenOptions::new().create(true).append(true).open(folder.join(name)).unwrap()
}

fn counted(folder: &Folder, name: &str) -> usize {
    std::fs::metadata(folder.0.join(name)).map_or(0, |data| data.len() as usize)
}

/// The right to hold a large block: it ends with whoever has it.
fn turn(folder: &Path) -> File {
    let file = |turn: usize| tally(folder, &format!("turn-{turn}"));
    let turns: Vec<File> = (0..LARGE_AT_ONCE).map(file).collect();
    loop {
        if let Some(at) = turns.iter().position(|turn| turn.try_lock().is_ok()) {
            return turns.into_iter().nth(at).unwrap();
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Random phases: a small block in use, now and then a large one, then unused memory.
#[test]
#[ignore = "started by the test below"]
fn one_of_them() {
    let Some(path) = std::env::var_os(VARIABLE) else { return };
    let folder = std::mem::ManuallyDrop::new(Folder(path.into()));
    let mut seed = std::env::var("DRYSTONE_TEST_SEED").unwrap().parse::<u64>().unwrap();
    let (_, process) = process(&folder);
    thread::spawn(|| {
        // The test has ended, however it did.
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let [mut served, mut refused, mut lost, mut taken] =
        ["served", "refused", "lost", "taken"].map(|name| tally(&folder.0, name));
    let mut before = process.table.exchanges();
    let mut allocate = |mib: u64| {
        let begun = Instant::now();
        let block = process.allocate(mib);
        match &block {
            Ok(_) => served.write_all(b".").unwrap(),
            Err(error) => {
                let line = format!("after {:?}: {error}\n", begun.elapsed());
                refused.write_all(line.as_bytes()).unwrap();
            }
        }
        let now = process.table.exchanges();
        for _ in before.taken..now.taken {
            taken.write_all(b".").unwrap();
        }
        for _ in before.unanswered..now.unanswered {
            lost.write_all(b".").unwrap();
        }
        before = now;
        block.ok()
    };
    loop {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let draw = |most: u64, at: u64| (seed >> at) % most + 1;
        let small = allocate(draw(SMALL_MIB, 20));
        let turn = turn(&folder.0);
        let large = allocate(draw(LARGE_MIB, 30));
        thread::sleep(Duration::from_millis(draw(20, 40)));
        drop(large);
        drop(turn);
        thread::sleep(Duration::from_millis(draw(20, 50)));
        drop(small);
    }
}

#[test]
fn who_stays_is_served_while_others_are_killed() {
    let seconds = std::env::var("DRYSTONE_TEST_SECONDS").map_or(SECONDS, |s| s.parse().unwrap());
    let folder = Folder::new("killed");
    let mut children: Vec<Child> = (0..PROCESSES).map(|seed| start(&folder, seed)).collect();
    let (device, own) = process(&folder);
    let board = own.table.board.as_ref().unwrap();
    let (begun, mut waits, mut killed, mut most_held) = (Instant::now(), Vec::new(), 0, 0);
    while begun.elapsed() < Duration::from_secs(seconds) {
        thread::sleep(KILLED_EVERY);
        let asked = Instant::now();
        let block = own.allocate(OWN_MIB).unwrap();
        waits.push(asked.elapsed());
        most_held = most_held.max(SHARED_BYTES - device.memory_info().unwrap().free_bytes);
        drop(block);
        own.allocator.trim().unwrap();
        let child = &mut children[killed % PROCESSES];
        child.kill().unwrap();
        child.wait().unwrap();
        *child = start(&folder, PROCESSES + killed);
        killed += 1;
        assert!(board.is_found() && board.others().count() <= PROCESSES, "the board is broken");
        assert!(board.others().all(|(_, slot)| slot.held_bytes() <= SHARED_BYTES));
    }
    waits.sort();
    let [served, lost, taken] = ["served", "lost", "taken"].map(|name| counted(&folder, name));
    println!(
        "{seconds} s, {killed} killed: {served} requests, {taken} gifts, own requests {:?} in the \
         middle and {:?} at most, {} wishes unanswered, held {:.3} of the device at most",
        waits[waits.len() / 2],
        waits.last().unwrap(),
        lost + own.table.exchanges().unanswered as usize,
        most_held as f64 / SHARED_BYTES as f64
    );
    let refused = std::fs::read_to_string(folder.0.join("refused")).unwrap_or_default();
    assert_eq!(refused, "", "memory was unused");
    assert_eq!(lost + own.table.exchanges().unanswered as usize, 0);
    assert!(served > killed && taken > 0 && most_held <= SHARED_BYTES);
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // Those that are dead hold nothing, and are not asked: all of the device can be had.
    let unanswered = own.table.exchanges().unanswered;
    let all = own.allocate(SHARED_BYTES / MIB - 24).unwrap();
    assert_eq!(own.table.exchanges().unanswered, unanswered);
    drop(all);
    assert_eq!(board.others().count(), 0);
}
