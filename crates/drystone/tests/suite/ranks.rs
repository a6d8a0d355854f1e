//! Two ranks at the end of their devices, whose kernels wait for each other: whoever holds streams
//! while a kernel waits for the other rank's gives up after its time, and all goes on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use drystone::driver::{Call, Driver as _, Stream};
use drystone::{AllocateError, Prefer, Stays};
use drystone_sim::{Gate, SimConfig, SimDevice};

use crate::altered::{Alteration, Altered};
use crate::moves::{TOTAL, moves, rest, sparse};
use crate::program::{Block, Lane, Program};
use crate::setup::VMM_2MIB;
use crate::sim::watched;

/// After so long nothing goes on any more.
const FOR_EVER: Duration = Duration::from_secs(30);

/// How many collectives each of two ranks has launched on each of two streams.
type Launched = [[AtomicU64; 2]; 2];

/// A thread of one rank launches collectives.
#[derive(Clone)]
struct Launcher {
    rank: usize,
    device: SimDevice,
    streams: [Stream; 2],
    launched: Arc<Launched>,
}

impl Launcher {
    /// Launches this rank's part of the next collective on a stream, which runs until the other
    /// rank has launched its own. It waits where the stream is held.
    fn launch(&self, stream: usize) {
        let (all, rank) = (Arc::clone(&self.launched), self.rank);
        let number = all[rank][stream].load(Ordering::Relaxed) + 1;
        let others = move || all[1 - rank][stream].load(Ordering::Acquire) >= number;
        self.device.launch_until(self.streams[stream], Gate(Arc::new(others))).unwrap();
        self.launched[rank][stream].store(number, Ordering::Release);
    }

    /// Waits for all that was launched.
    fn finish(&self) {
        for &stream in &self.streams {
            self.device.synchronize_stream(stream).unwrap();
        }
    }
}

/// What goes on when a rank first comes to hold its streams.
#[derive(Default)]
struct AtFirstHold {
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    is_armed: OnceLock<()>,
}

impl Alteration for Arc<AtFirstHold> {
    fn before(&self, call: Call) {
        if call == Call::Hold && self.is_armed.get().is_some() {
            let then = self.then.lock().unwrap().take();
            then.into_iter().for_each(|then| then());
        }
    }
}

struct Rank {
    program: Program,
    launcher: Launcher,
    at_first_hold: Arc<AtFirstHold>,
    lane: Lane,
    kept: Vec<Block>,
}

impl Rank {
    fn pair() -> [Rank; 2] {
        let launched: Arc<Launched> = Arc::default();
        let config = |ordinal| SimConfig { ordinal, total_bytes: TOTAL, ..watched() };
        let first = SimDevice::new(config(0));
        let second = SimDevice::beside(config(1), &first);
        let mut ranks = [first, second].into_iter().enumerate().map(|(rank, device)| {
            let at_first_hold = Arc::new(AtFirstHold::default());
            let alteration = Arc::clone(&at_first_hold);
            let driver = Arc::new(Altered { inner: Arc::new(device.clone()), alteration });
            let options = VMM_2MIB.options().with_prefer(Prefer::Balanced);
            let program = Program::with_driver(Arc::new(device.clone()), driver, options);
            program.allocator.know_all_streams(|_, run| run(Vec::new()));
            let (lane, streams) = (program.lane(), [program.lane(), program.lane()]);
            let kept = sparse(&program, lane);
            kept.iter().for_each(|block| program.use_on(block, streams[0]));
            let (streams, launched) = (streams.map(|lane| lane.stream), Arc::clone(&launched));
            let launcher = Launcher { rank, device, streams, launched };
            Rank { program, launcher, at_first_hold, lane, kept }
        });
        [(); 2].map(|()| ranks.next().unwrap())
    }

    /// Asks again and again, as after each pause it may.
    fn is_served(&self) {
        let begun = Instant::now();
        loop {
            match self.program.try_allocate(self.lane, rest(&self.kept)) {
                Ok(block) => break self.program.free(block),
                Err(error) => assert!(begun.elapsed() < FOR_EVER, "{error}"),
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(self) {
        self.kept.into_iter().for_each(|block| self.program.free(block));
        self.program.end();
    }
}

type Job<T> = Box<dyn FnOnce() -> T + Send>;

fn job<T>(run: impl FnOnce() -> T + Send + 'static) -> Job<T> {
    Box::new(run)
}

/// Runs something for each rank, each on a thread of its own, and fails where that never ends.
fn side_by_side<T: Send + 'static>(of_each: [Job<T>; 2]) -> [T; 2] {
    let done = of_each.map(|run| {
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let _ = tell.send(run());
        });
        told
    });
    done.map(|told| told.recv_timeout(FOR_EVER).unwrap_or_else(|_| panic!("a deadlock")))
}

/// Each rank has launched what the other has not, when both hold their streams: neither stops, and
/// what would let it stop is not launched while the other holds. Whether both gave up: where one is
/// late, the other has done so before.
fn both_give_up() -> bool {
    let ranks = Rank::pair();
    let barrier = Arc::new(Barrier::new(2));
    for rank in &ranks {
        let (launcher, barrier) = (rank.launcher.clone(), Arc::clone(&barrier));
        let then = move || {
            let own = launcher.rank;
            launcher.launch(own);
            let holds = launcher.device.moved().holds;
            barrier.wait();
            // Another thread comes to the other collective while streams are held.
            thread::spawn(move || {
                while launcher.device.moved().holds == holds {
                    thread::yield_now();
                }
                launcher.launch(1 - own);
            });
        };
        *rank.at_first_hold.then.lock().unwrap() = Some(Box::new(then));
        rank.at_first_hold.is_armed.set(()).unwrap();
    }
    let asked = side_by_side(ranks.map(|rank| {
        job(move || {
            let holds = rank.launcher.device.moved().holds;
            let asked = rank.program.try_allocate(rank.lane, rest(&rank.kept));
            let holds = rank.launcher.device.moved().holds - holds;
            (rank, asked, holds)
        })
    }));
    let mut gave_up = 0;
    for (rank, asked, holds) in asked {
        // Once the device was waited for, both collectives are over, and memory moves.
        gave_up += u64::from(holds > moves(&rank.program));
        match asked {
            Ok(block) => rank.program.free(block),
            Err(AllocateError::OutOfMemory(error)) => {
                assert_eq!((moves(&rank.program), error.stays), (0, Some(Stays::BusyStreams)));
            }
            Err(error) => panic!("{error}"),
        }
        // Both collectives come to an end: then there is nothing that does not stop.
        rank.launcher.finish();
        rank.is_served();
        assert!(moves(&rank.program) > 0);
        rank.end();
    }
    gave_up == 2
}

#[test]
fn two_ranks_that_hold_each_other_up_both_give_up() {
    assert!((0..100).any(|_| both_give_up()), "they never hold at the same time");
}

/// Both move memory again and again beside a thread that launches collectives all the time.
#[test]
fn ranks_move_memory_beside_collectives() {
    const ROUNDS: u64 = 300;
    let ranks = Rank::pair();
    let launchers = ranks.each_ref().map(|rank| rank.launcher.clone());
    let launch = launchers.map(|launcher| {
        job(move || {
            for round in 0..ROUNDS {
                // Not in the same order on both.
                for stream in [0, 1] {
                    launcher.launch(stream ^ launcher.rank);
                }
                if round % 4 == 0 {
                    launcher.finish();
                }
            }
        })
    });
    let launching = thread::spawn(move || side_by_side(launch));
    let allocate = ranks.map(|rank| {
        job(move || {
            for round in 0..20 {
                if let Ok(block) = rank.program.try_allocate(rank.lane, rest(&rank.kept)) {
                    rank.program.free(block);
                }
                if round % 4 == 3 {
                    thread::sleep(Duration::from_millis(5));
                }
            }
            rank
        })
    });
    let ranks = side_by_side(allocate);
    launching.join().unwrap();
    for rank in ranks {
        rank.is_served();
        rank.end();
    }
}
