//! Figures of the measurements document, at each price table. Times are of this machine, and what
//! the driver would take comes on top of them:
//!
//!     cargo test --release -p drystone-process figures -- --ignored --nocapture --test-threads 1

use drystone_sim::{CostTable, Harsh};

use super::*;

const GIB: u64 = 1 << 30;
const ROUNDS: usize = 20;

fn tables() -> [(&'static str, CostTable); 3] {
    [
        ("a100", CostTable::a100()),
        ("vattention", CostTable::vattention()),
        ("small", CostTable::small()),
    ]
}

fn device_of(bytes: u64, costs: CostTable) -> SimDevice {
    let harsh = Harsh::ALL;
    SimDevice::new(SimConfig { total_bytes: bytes, costs, harsh, ..SimConfig::default() })
}

/// Half of it, and the longest.
fn middle_and_most(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort();
    (times[times.len() / 2], *times.last().unwrap())
}

#[test]
#[ignore = "figures"]
fn a_gibibyte_of_an_idle_neighbour() {
    for (name, costs) in tables() {
        let (folder, device) = (Folder::new("figures"), device_of(4 * GIB, costs));
        let driver: Arc<dyn Driver> = Arc::new(device.clone());
        let [first, second] = [(); 2].map(|()| Process::new(&driver, &folder, &Options::default()));
        let (mut with, mut alone, mut driver_us) = (Vec::new(), Vec::new(), 0.0);
        for _ in 0..ROUNDS {
            // The same request where the memory is free.
            let begun = Instant::now();
            drop(second.allocate(1536).unwrap());
            alone.push(begun.elapsed());
            second.allocator.trim().unwrap();
            drop(first.allocate(3584).unwrap());
            let (begun, before) = (Instant::now(), device.driver_time_us());
            let block = second.allocate(1536).unwrap();
            with.push(begun.elapsed());
            driver_us += device.driver_time_us() - before;
            drop(block);
            second.allocator.trim().unwrap();
        }
        let [with, alone] = [with, alone].map(middle_and_most);
        let driver_ms = driver_us / 1e3 / ROUNDS as f64;
        println!(
            "{name}: 1 GiB of an idle one: {with:?}, alone {alone:?}, driver {driver_ms:.1} ms"
        );
    }
}

/// The slowest of its mallocs, each with its free, while 1 GiB is asked of it and while none is.
#[test]
#[ignore = "figures"]
fn a_neighbour_that_runs_a_hit_loop() {
    let folder = Folder::new("figures-hits");
    let driver: Arc<dyn Driver> = Arc::new(device_of(4 * GIB, CostTable::a100()));
    let [first, second] = [(); 2].map(|()| Process::new(&driver, &folder, &Options::default()));
    for is_asked in [false, true] {
        let (mut slowest, mut later, mut hits, mut asked) =
            (Vec::new(), Vec::new(), 0_u64, Vec::new());
        for _ in 0..ROUNDS {
            drop(first.allocate(3584).unwrap());
            drop(first.allocate(8).unwrap());
            std::thread::scope(|scope| {
                let running = scope.spawn(|| {
                    let begun = Instant::now();
                    let mut times = Vec::with_capacity(1 << 20);
                    while begun.elapsed() < Duration::from_millis(60) {
                        let one = Instant::now();
                        drop(first.allocate(8).unwrap());
                        times.push(one.elapsed());
                    }
                    times
                });
                std::thread::sleep(Duration::from_millis(20));
                if is_asked {
                    let begun = Instant::now();
                    drop(second.allocate(1536).unwrap());
                    asked.push(begun.elapsed());
                }
                let mut times = running.join().unwrap();
                times.sort();
                hits += times.len() as u64;
                slowest.push(*times.last().unwrap());
                // All but one of ten thousand.
                later.push(times[times.len() - 1 - times.len() / 10_000]);
            });
            second.allocator.trim().unwrap();
        }
        let (slowest, later) = (middle_and_most(slowest), middle_and_most(later));
        let asked = (!asked.is_empty()).then(|| middle_and_most(asked));
        println!(
            "asked {is_asked}: {hits} hits, slowest {slowest:?}, 0.9999 {later:?}, given {asked:?}"
        );
    }
}

/// A server that holds weights and serves requests, then none for as long as it takes until all
/// that is idle went back: after an hour nothing else is so.
#[test]
#[ignore = "figures"]
fn an_idle_server() {
    for (name, costs) in tables() {
        let (folder, device) = (Folder::new("figures-idle"), device_of(80 * GIB, costs));
        let idle = Duration::from_secs(10);
        let options = Options::default().with_idle(Some(idle));
        let server = Process::new(&(Arc::new(device.clone()) as _), &folder, &options);
        let weights: Vec<_> = (0..64).map(|_| server.allocate(224).unwrap()).collect();
        let request = || {
            let (before, begun) = (device.driver_time_us(), Instant::now());
            let parts: Vec<_> = (1..=40).map(|part| server.allocate(7 * part).unwrap()).collect();
            drop(parts);
            ((device.driver_time_us() - before) / 1e3, begun.elapsed())
        };
        let first = request();
        let warm = request();
        std::thread::sleep(idle * 3 / 2);
        let in_use = server.allocator.stats().all.active_bytes.current / MIB;
        let (held, again) = (server.held(), request());
        println!(
            "{name}: held {held} MiB, {in_use} in use ({:.4}); 5,740 MiB, ms of the driver and \
             time beside it: first {first:.1?}, warm {warm:.1?}, after idle {again:.1?}",
            held as f64 / in_use as f64
        );
        assert!(held as f64 <= 1.01 * in_use as f64);
        drop(weights);
    }
}

/// A recorded program: what is asked for and freed, by number, and how long it took.
struct Recorded {
    events: Vec<(bool, usize, u64)>,
    blocks: usize,
    peak_bytes: u64,
    seconds: f64,
}

fn recorded(name: &str) -> Recorded {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../traces").join(name);
    let output = std::process::Command::new("zstd").arg("-dc").arg(path).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let (mut sizes, mut now, mut last_ns) = (Vec::new(), 0, 0);
    let mut all = Recorded { events: Vec::new(), blocks: 0, peak_bytes: 0, seconds: 0.0 };
    for line in text.lines().skip(2) {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields[at].parse::<u64>().unwrap_or(0);
        let (is_taken, id) = (fields[0] == "a", number(1) as usize);
        if !is_taken && fields[0] != "f" {
            continue;
        }
        sizes.resize(sizes.len().max(id + 1), 0);
        if is_taken {
            sizes[id] = number(2);
            now += sizes[id];
            all.peak_bytes = all.peak_bytes.max(now);
        } else {
            now -= sizes[id];
        }
        last_ns = last_ns.max(number(4));
        all.events.push((is_taken, id, sizes[id]));
    }
    (all.blocks, all.seconds) = (sizes.len(), last_ns as f64 / 1e9);
    all
}

/// Runs it once; at its end all is freed, as an engine does that sleeps. How often it was refused.
fn run(process: &Process, program: &Recorded) -> usize {
    let mut blocks: Vec<Option<Allocation>> = Vec::new();
    blocks.resize_with(program.blocks, || None);
    let mut refused = 0;
    for &(is_taken, id, bytes) in &program.events {
        blocks[id] = match is_taken {
            true => process.allocator.allocate(process.stream, bytes).ok(),
            false => None,
        };
        refused += usize::from(is_taken && bytes > 0 && blocks[id].is_none());
    }
    refused
}

/// A trainer and an engine that take turns, on one device and on one for each.
#[test]
#[ignore = "figures"]
fn a_trainer_and_an_engine_that_take_turns() {
    const TURNS: usize = 3;
    let programs = ["llama3_8b_generate_dyncache.csv.zst", "llama3_8b_lora_sft_varlen.csv.zst"];
    let programs = programs.map(recorded);
    let peak_bytes = programs.iter().map(|one| one.peak_bytes).max().unwrap();
    let work: f64 = programs.iter().map(|one| one.seconds * TURNS as f64).sum();
    for (name, costs) in tables() {
        let folder = Folder::new("figures-turns");
        let shared = device_of((peak_bytes as f64 * 1.05) as u64, costs.clone());
        let alone = [(); 2].map(|()| device_of(80 * GIB, costs.clone()));
        let process = |device: &SimDevice, options: &Options| {
            Process::new(&(Arc::new(device.clone()) as _), &folder, options)
        };
        let nobody = Options::default().with_neighbours(None);
        let beside = [(); 2].map(|()| process(&shared, &Options::default()));
        let own = alone.each_ref().map(|device| process(device, &nobody));
        let (mut refused, mut asked) = (0, Duration::ZERO);
        for _ in 0..TURNS {
            for at in 0..2 {
                let begun = Instant::now();
                refused += run(&beside[at], &programs[at]);
                let took = begun.elapsed();
                let begun = Instant::now();
                assert_eq!(run(&own[at], &programs[at]), 0);
                asked += took.saturating_sub(begun.elapsed());
            }
        }
        let driver = shared.driver_time_us() / 1e6;
        let driver_alone: f64 = alone.iter().map(|one| one.driver_time_us() / 1e6).sum();
        let with = work + driver + asked.as_secs_f64();
        println!(
            "{name}: {TURNS} turns each on {} MiB, refused {refused}; work {work:.1} s, driver \
             {driver:.2} s for {driver_alone:.2} s alone, host {asked:?} more: {:.4} of the time",
            (peak_bytes as f64 * 1.05) as u64 / MIB,
            with / (work + driver_alone)
        );
    }
}
