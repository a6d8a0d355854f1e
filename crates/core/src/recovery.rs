//! Recovery: what to try next for a request that its free list could not serve.
//!
//! A [`Miss`] is made for each such request, and asked until it is over: each answer of
//! [`Heap::next`](crate::Heap::next) or [`AsyncPools::next`](crate::AsyncPools::next) is one thing
//! to do. A *try* is the request with the plans it takes, until it is served or refused. After a
//! refusal comes the out-of-memory ladder: what makes room, in order of cost. A rung that made some
//! is followed by another try (B28, B30). What a capture forbids is not asked for while one is
//! under way (I11, B22).
//!
//! `heap`, `async_pools`: how a try goes on. Here: what is the same for both.

mod async_pools;
mod heap;
#[cfg(test)]
mod tests;

use crate::counters::{Count, Counters};
use crate::error::RequestError;
use crate::fence::Fence;
use crate::headroom::Look;
use crate::id::{PoolId, StreamId};
use crate::plan::Reuse;
use crate::space::Granted;

/// Whom a capture under way concerns, as a request sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Captured {
    /// Nobody: no capture is under way.
    None,
    /// Another stream than the request's.
    Other,
    /// The request's stream.
    Own,
}

/// What to do next for a miss. `W` is work that serves the request, of one backend's own.
///
/// Exhaustive, as all of a plan is: who acts has to know of every answer.
#[derive(Debug)]
pub enum Next<W, E> {
    /// Served: the miss is over.
    Granted(Granted),
    /// Do this to the device, and say what became of it.
    CarryOut(W),
    /// Ask the device how much of it is free, then [`note_free`](Miss::note_free).
    LookAtDevice,
    /// See which fences have passed.
    CollectFences,
    /// Wait for every recorded fence, then [`note`](Miss::note) whether any has passed.
    AwaitFences,
    /// Wait until the device is idle, then [`note`](Miss::note) whether it was.
    Synchronize,
    /// Give back what can be given back, then [`note`](Miss::note) whether that was anything.
    Trim,
    /// Move what is live together so that the request fits, then [`note`](Miss::note) whether
    /// anything has moved.
    Compact,
    /// Ask other processes on the device for what it lacks beside so many unused bytes of this one,
    /// then [`note`](Miss::note) whether they gave anything back.
    AskNeighbours(u64),
    /// Ask the program to free something, then [`note`](Miss::note) whether it may have.
    AskProgram,
    /// Refused: the miss is over.
    GiveUp(Refusal<E>),
}

/// Why a request is refused. `E` is the driver's error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal<E> {
    /// The request is none that could be served.
    Request(RequestError),
    /// The limit of reserved bytes stands in the way.
    Limit,
    /// The device has less left than it takes, so that it was not even asked.
    Device,
    /// The driver has no memory, or no mappings, to give.
    OutOfMemory(E),
    /// The driver failed for another reason.
    Driver(E),
}

/// Why work was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure<E> {
    /// What the driver said.
    pub error: E,
    /// Whether giving memory back and trying again may help.
    pub is_out_of_memory: bool,
    /// The step that failed.
    pub failed_at: usize,
    /// How many leading steps are still in effect.
    pub in_effect: usize,
}

impl<E> Failure<E> {
    /// What the failure makes of a request if nothing else is tried.
    fn into_refusal(self) -> Refusal<E> {
        if self.is_out_of_memory {
            Refusal::OutOfMemory(self.error)
        } else {
            Refusal::Driver(self.error)
        }
    }
}

/// What makes room, in the order tried.
const LADDER: [Rung; 10] = [
    Rung::AwaitFences,
    Rung::TrimPassed,
    Rung::Synchronize,
    Rung::Compact,
    Rung::TrimIdle,
    Rung::AskNeighbours,
    Rung::AskProgram,
    // What was freed in pieces meanwhile serves once it went back to the device, and what went back
    // gives moves room.
    Rung::Synchronize,
    Rung::Compact,
    Rung::TrimIdle,
];

/// The last of them: a wait for the device, and what gives memory back.
const LAST: usize = 3;
/// How often the last rungs are climbed again, since others were served meanwhile. Four threads
/// that do nothing else come in between once in twenty times; so it barely ever ends for that.
const AGAIN_MAX: u32 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rung {
    /// Wait for fences of pending blocks.
    AwaitFences,
    /// Give back memory whose last use is complete.
    TrimPassed,
    /// Wait until the device is idle: what was pending or quarantined is free then.
    Synchronize,
    /// Move what is live together.
    Compact,
    /// Give back all unused memory of an idle device.
    TrimIdle,
    /// Ask other processes on the device.
    AskNeighbours,
    /// Ask the program.
    AskProgram,
}

impl Rung {
    /// Whether a capture leaves this to a request.
    const fn is_legal(self, captured: Captured) -> bool {
        match captured {
            Captured::None => true,
            Captured::Other => {
                matches!(self, Rung::AwaitFences | Rung::AskNeighbours | Rung::AskProgram)
            }
            // It may grow, and what others give back concerns no capture of this process.
            Captured::Own => matches!(self, Rung::AskNeighbours),
        }
    }

    /// `own_bytes`: what is unused here and will serve the request, too.
    const fn next<W, E>(self, own_bytes: u64) -> Next<W, E> {
        match self {
            Rung::AwaitFences => Next::AwaitFences,
            Rung::TrimPassed | Rung::TrimIdle => Next::Trim,
            Rung::Synchronize => Next::Synchronize,
            Rung::Compact => Next::Compact,
            Rung::AskNeighbours => Next::AskNeighbours(own_bytes),
            Rung::AskProgram => Next::AskProgram,
        }
    }
}

/// Where a miss stands.
#[derive(Debug)]
enum Stage<E> {
    /// The fences are still to be looked at.
    New,
    /// In a try: the request is to be made, or a plan for it is under way.
    Trying,
    /// In a try: fences were recorded, and are to be looked at before the request is made again.
    Recorded,
    /// In a try: the driver lacks mappings. Unless some can be unmapped, or what failed was growth
    /// in large handles, which took more of them than needed, it is refused.
    LacksMappings { refusal: Refusal<E>, has_large: bool },
    /// In a try: mappings are being unmapped. If that fails, it is refused.
    Evicting(Refusal<E>),
    /// Served.
    Served(Granted),
    /// A try was refused.
    Refused(Refusal<E>),
    /// On a rung of the ladder; how the last try was refused.
    Climbing(Rung, Refusal<E>),
    /// Over: refused for good, or handed out.
    Over,
}

/// A request that its free list could not serve, with what was tried for it.
#[derive(Debug)]
pub struct Miss<E> {
    pool: PoolId,
    stream: StreamId,
    bytes: u64,
    captured: Captured,
    stage: Stage<E>,
    /// How many rungs of the ladder are behind it.
    climbed: usize,
    /// How often the last rungs were climbed again.
    climbed_again: u32,
    /// Blocks given, and bytes given back, when the device was last waited for.
    before_wait: (u64, u64),
    /// Whether other processes may still give something back: not once they gave nothing. Others
    /// may take what they gave, so who asks them ends it, by the time.
    asks_neighbours: bool,
    /// Whether the rungs since the last try made room.
    has_room: bool,
    /// How far this try goes for memory before it grows.
    reuse: Reuse,
    /// What this try may know of the device.
    look: Look,
    /// What was just seen free on the device, in bytes.
    seen_free_bytes: Option<u64>,
    /// In this try.
    has_looked: bool,
    /// A reservation was refused in this try: another that is refused ends it.
    was_refused_addresses: bool,
    /// A granule was refused in this try though there seemed to be some: another ends it.
    was_refused_granules: bool,
    /// Mappings were unmapped in this try: there are no more to unmap.
    has_evicted: bool,
    /// It was tried to keep room for moves, which once for a request is enough.
    has_made_room: bool,
    /// Fences that were recorded in this try, to see whether their streams are idle.
    recorded: Vec<Fence>,
    /// How often it is still looked whether they have passed, before memory is created.
    looks: u64,
}

impl<E> Miss<E> {
    /// A request for so many bytes that missed.
    pub const fn new(pool: PoolId, stream: StreamId, bytes: u64, captured: Captured) -> Self {
        let (reuse, look) = first_means(captured);
        Self {
            pool,
            stream,
            bytes,
            captured,
            // Asking for events could break the capture.
            stage: if matches!(captured, Captured::Own) { Stage::Trying } else { Stage::New },
            climbed: 0,
            climbed_again: 0,
            before_wait: (0, 0),
            asks_neighbours: true,
            has_room: false,
            reuse,
            look,
            seen_free_bytes: None,
            has_looked: false,
            was_refused_addresses: false,
            was_refused_granules: false,
            has_evicted: false,
            has_made_room: false,
            recorded: Vec::new(),
            looks: 0,
        }
    }

    /// The pool asked.
    pub const fn pool(&self) -> PoolId {
        self.pool
    }

    /// The stream in whose order the block is to be used.
    pub const fn stream(&self) -> StreamId {
        self.stream
    }

    /// Size of the request, in bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whom a capture under way concerns.
    pub const fn captured(&self) -> Captured {
        self.captured
    }

    /// Whether what is next is part of a try, in which driver calls are made for the request
    /// itself, and not between tries.
    pub const fn is_trying(&self) -> bool {
        matches!(
            self.stage,
            Stage::Trying | Stage::Recorded | Stage::LacksMappings { .. } | Stage::Evicting(_)
        )
    }

    /// Whether live memory may still be moved before new memory is created.
    const fn may_make_room(&self) -> bool {
        !self.has_made_room && matches!(self.captured, Captured::None)
    }

    /// Says what came of the last answer: whether a fence has passed, the device was idle,
    /// anything was given back, or the program may have freed something.
    pub fn note(&mut self, made_room: bool) {
        self.has_room |= made_room;
        if matches!(self.stage, Stage::Climbing(Rung::AskNeighbours, _)) {
            // With what they gave, what is unused here may do: its rungs come again.
            self.climbed = if made_room { 0 } else { self.climbed };
            self.asks_neighbours = made_room;
        }
        let is_worth_a_try = match self.stage {
            // An idle device is trimmed before anything is tried, unless memory moved.
            Stage::Climbing(Rung::Synchronize, _) => false,
            Stage::Climbing(Rung::Compact, _) => made_room,
            _ => self.has_room,
        };
        if is_worth_a_try {
            self.stage = Stage::Trying;
            (self.reuse, self.look) = first_means(self.captured);
            (self.was_refused_addresses, self.was_refused_granules) = (false, false);
            (self.has_room, self.has_evicted, self.has_looked) = (false, false, false);
        }
    }

    /// Says how many bytes of the device are free; `None` if it cannot say.
    pub const fn note_free(&mut self, free_bytes: Option<u64>) {
        self.has_looked = true;
        self.look = match (self.look, free_bytes) {
            // What a capture forbids stays forbidden.
            (Look::Past, _) | (_, None) => Look::Past,
            (Look::Due | Look::Fresh, Some(_)) => Look::Fresh,
        };
        self.seen_free_bytes = free_bytes;
    }

    /// What is next except making the request, which is what `None` asks for. `left_bytes` is
    /// the most that the request could be given beside what is allocated; `own_bytes`, if others
    /// would give the rest, what is unused here and serves as it is.
    fn go_on<W>(
        &mut self,
        stats: &mut Counters,
        left_bytes: u64,
        own_bytes: Option<u64>,
    ) -> Option<Next<W, E>> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::New | Stage::Recorded => {
                self.stage = Stage::Trying;
                Some(Next::CollectFences)
            }
            Stage::Trying | Stage::Over => {
                self.stage = Stage::Trying;
                None
            }
            Stage::Served(granted) => Some(Next::Granted(granted)),
            Stage::Climbing(_, refusal)
            | Stage::Refused(refusal)
            | Stage::LacksMappings { refusal, .. }
            | Stage::Evicting(refusal) => Some(match refusal {
                Refusal::Request(_) | Refusal::Driver(_) => Next::GiveUp(refusal),
                Refusal::Limit | Refusal::Device | Refusal::OutOfMemory(_) => {
                    self.climb(refusal, stats, left_bytes, own_bytes)
                }
            }),
        }
    }

    /// The next rung that is legal and may help.
    fn climb<W>(
        &mut self,
        refusal: Refusal<E>,
        stats: &mut Counters,
        left_bytes: u64,
        own_bytes: Option<u64>,
    ) -> Next<W, E> {
        let (given, given_back_bytes) = stats.turnover();
        let all = &stats.all;
        let unused_bytes = all.reserved_bytes.current - all.active_bytes.current();
        // Then only others can help, and what is cached stays.
        let is_short = left_bytes < self.bytes;
        // What it was waited for may have gone to others, and what they freed for it came too late
        // to be seen.
        let has_others = given > self.before_wait.0;
        let gone_bytes = given_back_bytes - self.before_wait.1;
        let comes_late = has_others && unused_bytes + gone_bytes >= self.bytes;
        let is_at_the_end = self.climbed == LADDER.len() && self.climbed_again < AGAIN_MAX;
        if is_at_the_end && comes_late && !is_short {
            self.climbed -= LAST;
            self.climbed_again += 1;
        }
        while let Some(&rung) = LADDER.get(self.climbed) {
            self.climbed += 1;
            let may_help = match rung {
                Rung::AskProgram => true,
                // The limit is this allocator's own.
                Rung::AskNeighbours => self.asks_neighbours && !matches!(refusal, Refusal::Limit),
                // It would be created again, with what others give.
                Rung::TrimPassed | Rung::TrimIdle if own_bytes.is_some() => false,
                _ => !is_short,
            };
            if may_help && rung.is_legal(self.captured) {
                stats.rare.retries += u64::from(rung == Rung::TrimPassed);
                if rung == Rung::Synchronize {
                    self.before_wait = (given, given_back_bytes);
                }
                self.stage = Stage::Climbing(rung, refusal);
                let unused_bytes = if is_short { unused_bytes } else { 0 };
                return rung.next(own_bytes.unwrap_or(unused_bytes));
            }
        }
        Next::GiveUp(refusal)
    }
}

/// What a try may take, and may know of the device. A captured request takes from no other stream;
/// while anything is captured, the device is not asked.
const fn first_means(captured: Captured) -> (Reuse, Look) {
    match captured {
        Captured::None => (Reuse::MayWait, Look::Due),
        Captured::Other => (Reuse::MayWait, Look::Past),
        Captured::Own => (Reuse::OwnStream, Look::Past),
    }
}

impl<E> From<RequestError> for Refusal<E> {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Limit { .. } => Refusal::Limit,
            RequestError::Device { .. } => Refusal::Device,
            error => Refusal::Request(error),
        }
    }
}
