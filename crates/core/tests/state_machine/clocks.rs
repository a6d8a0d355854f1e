//! Clocks: the streams of the fake device, and who happens before whom.
//!
//! Each stream is a queue with a vector clock. Work advances the stream's own component, a record
//! takes a copy of the clock, a wait joins that copy in. The host has a clock too: what it knows
//! to be complete. Everything is queued by the host, so every new item starts from its clock.
//! Promise P2 is checked with these clocks, never with the heap's own points.

use std::collections::BTreeMap;

use drystone_core::{Fence, StreamId};

/// For each queue, by number, the last of its work that is covered.
#[derive(Clone, Debug, Default)]
pub struct Clock(Vec<u64>);

impl Clock {
    fn at(&self, queue: usize) -> u64 {
        self.0.get(queue).copied().unwrap_or(0)
    }

    /// Covers what another clock covers, too.
    pub fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, &theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(theirs);
        }
    }

    /// Whether everything the other clock covers is covered.
    pub fn covers(&self, other: &Clock) -> bool {
        other.0.iter().enumerate().all(|(queue, &tick)| self.at(queue) >= tick)
    }

    fn tick(&mut self, queue: usize) -> Clock {
        if self.0.len() <= queue {
            self.0.resize(queue + 1, 0);
        }
        self.0[queue] += 1;
        let mut moment = vec![0; queue + 1];
        moment[queue] = self.0[queue];
        Clock(moment)
    }
}

/// What a queue holds beside work.
#[derive(Clone, Copy, Debug)]
enum Item {
    Work,
    Record,
    /// Waits until another queue has done this many items.
    Wait {
        queue: usize,
        items: usize,
    },
}

#[derive(Debug, Default)]
struct Queue {
    is_destroyed: bool,
    clock: Clock,
    items: Vec<Item>,
    done: usize,
}

#[derive(Debug)]
struct Recorded {
    clock: Clock,
    /// The items its queue must have done.
    items: usize,
}

/// All streams there ever were.
#[derive(Debug, Default)]
pub struct Clocks {
    queues: Vec<Queue>,
    numbers: BTreeMap<StreamId, usize>,
    records: BTreeMap<(usize, u64), Recorded>,
    host: Clock,
}

impl Clocks {
    pub fn add(&mut self, stream: StreamId) {
        let twice = self.numbers.insert(stream, self.queues.len());
        assert!(twice.is_none(), "{stream:?} was handed out twice (B47)");
        self.queues.push(Queue::default());
    }

    pub fn destroy(&mut self, stream: StreamId) {
        let number = self.numbers[&stream];
        self.queues[number].is_destroyed = true;
    }

    pub fn is_destroyed(&self, stream: StreamId) -> bool {
        self.queues[self.numbers[&stream]].is_destroyed
    }

    /// What a new item of the stream comes after.
    pub fn now(&self, stream: StreamId) -> Clock {
        let mut clock = self.queues[self.numbers[&stream]].clock.clone();
        clock.join(&self.host);
        clock
    }

    pub fn host(&self) -> &Clock {
        &self.host
    }

    fn queue(&mut self, stream: StreamId, item: Item) -> usize {
        let number = self.numbers[&stream];
        let queue = &mut self.queues[number];
        assert!(!queue.is_destroyed, "{stream:?} is used after it was destroyed (B1, B14)");
        queue.clock.join(&self.host);
        queue.items.push(item);
        number
    }

    /// Queues work; returns a clock that covers that work alone.
    pub fn work(&mut self, stream: StreamId) -> Clock {
        let number = self.queue(stream, Item::Work);
        self.queues[number].clock.tick(number)
    }

    pub fn record(&mut self, fence: Fence) {
        let number = self.queue(fence.stream, Item::Record);
        let queue = &self.queues[number];
        let recorded = Recorded { clock: queue.clock.clone(), items: queue.items.len() };
        let twice = self.records.insert((number, fence.point), recorded);
        assert!(twice.is_none(), "{fence:?} is recorded twice");
    }

    /// Waits for the fence or for a later one of its stream.
    pub fn wait(&mut self, stream: StreamId, fence: Fence) {
        let awaited = self.numbers[&fence.stream];
        let mut later = self.records.range((awaited, fence.point)..=(awaited, u64::MAX));
        let Some((_, recorded)) = later.next() else {
            panic!("{stream:?} waits for {fence:?}, which was never recorded");
        };
        let (clock, items) = (recorded.clock.clone(), recorded.items);
        let number = self.queue(stream, Item::Wait { queue: awaited, items });
        self.queues[number].clock.join(&clock);
    }

    /// Lets the device do up to this many items of a queue, as far as its waits allow.
    pub fn progress(&mut self, number: usize, items: usize) {
        for _ in 0..items {
            let queue = &self.queues[number];
            let is_held_up = match queue.items.get(queue.done) {
                None => true,
                Some(&Item::Wait { queue, items }) => self.queues[queue].done < items,
                Some(Item::Work | Item::Record) => false,
            };
            if is_held_up {
                return;
            }
            self.queues[number].done += 1;
        }
    }

    /// Lets the device do everything, and the host know it.
    pub fn synchronize(&mut self) {
        for number in 0..self.queues.len() {
            self.queues[number].done = self.queues[number].items.len();
            self.host.join(&self.queues[number].clock.clone());
        }
    }

    /// The number of a stream's queue.
    pub fn number(&self, stream: StreamId) -> usize {
        self.numbers[&stream]
    }

    /// How many streams there ever were.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// The fences of a queue that the device has passed, in order of their points.
    pub fn passed(&self, number: usize) -> Vec<Fence> {
        let Some((&stream, _)) = self.numbers.iter().find(|&(_, &n)| n == number) else {
            return Vec::new();
        };
        self.records
            .range((number, 0)..=(number, u64::MAX))
            .filter(|(_, recorded)| recorded.items <= self.queues[number].done)
            .map(|(&(_, point), _)| Fence { stream, point })
            .collect()
    }

    /// The host learns that a fence has passed.
    pub fn learn(&mut self, fence: Fence) {
        let recorded = &self.records[&(self.numbers[&fence.stream], fence.point)];
        self.host.join(&recorded.clock);
    }
}
