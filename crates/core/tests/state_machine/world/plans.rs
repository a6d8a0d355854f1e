//! Plans: carried out on the fake device to their end, to a failure, or left open.

use drystone_core::{Committed, Failure, Fence, Place, Plan, Step, StreamId};

use super::World;
use crate::device::Refusal;
use crate::reference::Away;

/// What happens to a plan.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    Complete,
    /// Fails after some steps; the undo completes, or stops at one that cannot be undone.
    Fail {
        after: usize,
        stop: Option<usize>,
    },
    /// Stays open after some steps.
    Open {
        done: usize,
    },
}

/// What happened to a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    Committed(Committed),
    /// Done, and handed back for a miss, which says what is next.
    HandedBack,
    Abandoned,
    Open,
}

#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub pool: usize,
    pub stream: StreamId,
    pub bytes: u64,
}

#[derive(Debug)]
pub enum Purpose {
    Request(Request),
    Free { address: u64, fences: Vec<Fence> },
    Retire(StreamId),
    Synchronize { fences: Vec<Fence>, quarantined: Vec<u64> },
    Trim,
    Move,
}

/// A plan under way.
#[derive(Debug)]
pub struct Flight {
    pub plan: Plan,
    pub purpose: Purpose,
    done: usize,
    given: u64,
    /// Physical bytes taken and given back so far, of which the heap does not know yet.
    taken_bytes: u64,
    returned_bytes: u64,
}

impl Flight {
    /// Whether nothing of its kind may be under way beside a move: what changes the map.
    pub fn is_alone(&self) -> bool {
        matches!(self.purpose, Purpose::Request(_) | Purpose::Trim | Purpose::Move)
    }
}

impl World {
    pub fn open_plans(&self) -> usize {
        self.flights.len()
    }

    /// Takes an open plan on to its fate.
    pub fn resume(&mut self, nth: usize, fate: Fate) -> Carried {
        let flight = self.flights.remove(nth);
        self.carry_out(flight, fate)
    }

    pub(super) fn launch(&mut self, plan: Plan, purpose: Purpose, fate: Fate) -> Carried {
        for step in plan.steps() {
            let user = match *step {
                Step::Record { fence } => {
                    self.reference.note_issued(fence);
                    fence.stream
                }
                Step::Wait { stream, fence } => {
                    assert_ne!(stream, fence.stream, "a stream waits for itself");
                    stream
                }
                _ => continue,
            };
            let is_last = matches!(purpose, Purpose::Retire(stream) if stream == user);
            let is_there = self.reference.streams.contains(&user);
            assert!(is_there || is_last, "{step:?} is planned, but the stream is gone (B1)");
        }
        let flight = Flight { plan, purpose, done: 0, given: 0, taken_bytes: 0, returned_bytes: 0 };
        let planned = growth_bytes(&flight.plan);
        if planned > 0 {
            let reserved = self.reserved_bytes() + self.planned_bytes() + planned;
            assert!(reserved <= self.heap.config().limit_bytes, "grows past the limit (B19)");
        }
        self.carry_out(flight, fate)
    }

    pub(super) fn carry_out(&mut self, mut flight: Flight, fate: Fate) -> Carried {
        let steps = flight.plan.steps().len();
        let until = match fate {
            Fate::Complete => steps,
            // Nobody sees live memory between two places.
            Fate::Open { done } => done.min(lifted_at(&flight.plan)).min(steps),
            // To let go never fails.
            Fate::Fail { after, .. } if is_let_go(&flight.plan) => after.min(steps - 2),
            Fate::Fail { after, .. } => after.min(steps.saturating_sub(1)),
        };
        while flight.done < until {
            let before = self.device.held_bytes();
            match self.device.step(&flight.plan.steps()[flight.done]) {
                Ok(given) => flight.given = given.unwrap_or(flight.given),
                Err(refusal) => return self.abandon(flight, None, Some(refusal)),
            }
            let after = self.device.held_bytes();
            flight.taken_bytes += after.saturating_sub(before);
            flight.returned_bytes += before.saturating_sub(after);
            flight.done += 1;
        }
        match fate {
            Fate::Complete => self.commit(flight),
            Fate::Open { .. } => {
                self.flights.push(flight);
                Carried::Open
            }
            // A plan of no step cannot fail, nor can one that is done.
            Fate::Fail { .. } if flight.done == steps => self.commit(flight),
            Fate::Fail { stop, .. } => self.abandon(flight, stop, None),
        }
    }

    fn end_move(&mut self, flight: &Flight) {
        if matches!(flight.purpose, Purpose::Move) {
            self.device.end_move();
        }
    }

    pub(super) fn commit(&mut self, flight: Flight) -> Carried {
        self.end_move(&flight);
        if let (Purpose::Request(_), Some(miss)) = (&flight.purpose, &mut self.miss) {
            self.heap.carried_out(miss, flight.plan, Ok(flight.given));
            return Carried::HandedBack;
        }
        let committed = self.heap.commit(flight.plan, flight.given);
        match flight.purpose {
            Purpose::Request(request) => match committed {
                Committed::Granted(grant) => {
                    self.take(request, grant);
                }
                Committed::Prepared | Committed::Recorded => {}
                Committed::Done => panic!("{request:?} is done without a block"),
            },
            Purpose::Free { address, fences } => {
                if let Some(block) = self.reference.publish(address, &fences) {
                    self.note_complete(&block);
                }
            }
            Purpose::Retire(stream) => self.device.clocks.destroy(stream),
            Purpose::Synchronize { fences, quarantined } => {
                for fence in fences {
                    for block in self.reference.tell(fence) {
                        self.note_complete(&block);
                    }
                }
                for address in quarantined {
                    let block = self.reference.take_away(address).expect("a quarantined block");
                    self.note_complete(&block);
                }
            }
            Purpose::Trim | Purpose::Move => assert_eq!(committed, Committed::Prepared),
        }
        Carried::Committed(committed)
    }

    /// Undoes a plan as far as `stop` lets it, and hands it back failed.
    pub(super) fn abandon(
        &mut self,
        flight: Flight,
        stop: Option<usize>,
        why: Option<Refusal>,
    ) -> Carried {
        let done = &flight.plan.steps()[..flight.done];
        let mut in_effect = 0;
        if !flight.plan.is_all_or_nothing() {
            in_effect = done.len();
        } else if let Some(stop) = stop {
            // The undo stops at a step that has something to undo; where there is none, steps
            // that were done may be said to stand.
            let stays = |step: &&Step| matches!(step, Step::Create { .. } | Step::Map { .. });
            let before = done.len().min(lifted_at(&flight.plan));
            let places: Vec<usize> =
                (0..before).filter(|&at| stays(&&done[at])).map(|at| at + 1).collect();
            in_effect = if places.is_empty() { before } else { places[stop % places.len()] };
        }
        if flight.plan.is_all_or_nothing() {
            for step in done[in_effect..].iter().rev() {
                self.device.undo(step, flight.given);
            }
        }
        self.end_move(&flight);
        let is_last_chance = matches!(flight.purpose, Purpose::Retire(_));
        assert!(why != Some(Refusal::StreamIsGone) || !is_last_chance);
        if let (Purpose::Request(_), Some(miss)) = (&flight.purpose, &mut self.miss) {
            let failed_at = flight.done;
            let failure = Failure { error: (), is_out_of_memory: true, failed_at, in_effect };
            self.heap.carried_out(miss, flight.plan, Err(failure));
            return Carried::Abandoned;
        }
        self.heap.abandon(flight.plan, in_effect);
        match flight.purpose {
            Purpose::Free { address, .. } => {
                self.reference.away.get_mut(&address).expect("a claimed block").1 =
                    Away::Quarantined;
            }
            Purpose::Retire(stream) => self.device.clocks.destroy(stream),
            Purpose::Request(_) | Purpose::Synchronize { .. } => {}
            Purpose::Trim | Purpose::Move => {}
        }
        Carried::Abandoned
    }

    /// What open plans add to it.
    pub(super) fn planned_bytes(&self) -> u64 {
        self.flights.iter().map(|flight| growth_bytes(&flight.plan)).sum()
    }

    /// What the heap knows to be held from the device.
    pub(super) fn reserved_bytes(&self) -> u64 {
        let taken: u64 = self.flights.iter().map(|flight| flight.taken_bytes).sum();
        let returned: u64 = self.flights.iter().map(|flight| flight.returned_bytes).sum();
        self.device.held_bytes() + returned - taken
    }

    /// Segments that open plans give back: the device may have handed their addresses out again.
    pub(super) fn withdrawn_segments(&self) -> u64 {
        let steps = self.flights.iter().flat_map(|flight| flight.plan.steps());
        let is_end = |step: &&Step| matches!(step, Step::Unreserve { .. } | Step::Free { .. });
        steps.filter(is_end).count() as u64
    }
}

/// Up to which step a plan leaves live memory where it is.
fn lifted_at(plan: &Plan) -> usize {
    let lifted = plan.steps().iter().position(|step| matches!(step, Step::Lift { .. }));
    lifted.unwrap_or(usize::MAX)
}

fn is_let_go(plan: &Plan) -> bool {
    matches!(plan.steps().last(), Some(Step::LetGo))
}

/// Bytes that a plan adds to the reserved ones. Those in the host's memory are, and with what comes
/// back from there they go.
fn growth_bytes(plan: &Plan) -> u64 {
    let is_released = |of| plan.steps().contains(&Step::Release { granule: of });
    let growth = plan.steps().iter().map(|step| match *step {
        Step::Create { bytes, place: Place::Device, .. } | Step::Malloc { bytes } => bytes,
        _ => 0,
    });
    let back = plan.steps().iter().find_map(|step| match *step {
        Step::Lift { bytes, granule, .. } if is_released(granule) => Some(bytes),
        _ => None,
    });
    growth.sum::<u64>().saturating_sub(back.unwrap_or(0))
}
