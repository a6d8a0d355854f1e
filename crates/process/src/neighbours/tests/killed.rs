//! Processes on one device that are killed at any moment: those that stay are served as if they had
//! never been there.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;

use super::*;

/// Says to this program that it is one of the processes, and where they meet.
const VARIABLE: &str = "DRYSTONE_TEST_NEIGHBOUR";
const PROCESSES: usize = 4;
/// How often one is killed.
const KILLED: usize = 60;

/// A process of its own on the device that all share.
fn process(folder: &Folder) -> Process {
    let shared = Some(folder.0.join("device"));
    let config = SimConfig { total_bytes: DEVICE_BYTES, shared, ..SimConfig::default() };
    let device: Arc<dyn Driver> = Arc::new(SimDevice::new(config));
    // Tests share their processors with others.
    let options = Options::default().with_neighbours(Some(Duration::from_secs(1)));
    Process::new(&device, folder, &options)
}

fn start(folder: &Folder, seed: usize) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "neighbours::tests::killed::one_of_them", "--ignored", "--nocapture"]);
    child.env(VARIABLE, &folder.0).env("DRYSTONE_TEST_SEED", seed.to_string());
    child.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// Random phases: it holds up to 64 MiB in use, and up to 320 MiB unused, until nobody is there.
/// What all have in use at a time leaves room for every request.
#[test]
#[ignore = "started by the test below"]
fn one_of_them() {
    let Some(path) = std::env::var_os(VARIABLE) else { return };
    let folder = std::mem::ManuallyDrop::new(Folder(path.into()));
    let mut seed = std::env::var("DRYSTONE_TEST_SEED").unwrap().parse::<u64>().unwrap();
    let process = process(&folder);
    thread::spawn(|| {
        // The test has ended, however it did.
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    loop {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let draw = |most: u64, at: u64| (seed >> at) % most + 1;
        let kept = process.allocate(draw(64, 20)).ok();
        drop(process.allocate(draw(320, 30)));
        thread::sleep(Duration::from_millis(draw(20, 40)));
        drop(kept);
    }
}

#[test]
fn who_stays_is_served_while_others_are_killed() {
    let folder = Folder::new("killed");
    let mut children: Vec<Child> = (0..PROCESSES).map(|seed| start(&folder, seed)).collect();
    let own = process(&folder);
    let (mut slowest, mut asked) = (Duration::ZERO, 0);
    for round in 0..KILLED {
        thread::sleep(Duration::from_millis(20));
        let begun = Instant::now();
        // All others have 64 MiB in use at most, and one request under way.
        let block = own.allocate(256);
        slowest = slowest.max(begun.elapsed());
        asked += usize::from(block.is_ok());
        if let Err(error) = &block {
            println!("{:?}: {error}", begun.elapsed());
        }
        drop(block);
        own.allocator.trim().unwrap();
        let child = &mut children[round % PROCESSES];
        child.kill().unwrap();
        child.wait().unwrap();
        *child = start(&folder, PROCESSES + round);
    }
    let exchanges = own.table.exchanges();
    println!("served {asked} of {KILLED}, slowest {slowest:?}, {exchanges:?}");
    assert_eq!(asked, KILLED);
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // Those that are dead hold nothing, and are not asked: all of the device can be had.
    let begun = Instant::now();
    let all = own.allocate(1000).unwrap();
    assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
    drop(all);
    let board = own.table.board.as_ref().unwrap();
    assert_eq!(board.others().count(), 0);
}
