//! Headroom: what may be asked of the device. How much memory and in what handles, how many
//! addresses, as far as is known.
//!
//! What others hold of the device is only known from a look at it, which can take milliseconds: one
//! is asked for when memory is about to be created that may not be there, and at the latest when an
//! eighth of what was left is created. Between looks the heap's own growth is counted. What was
//! refused of late is asked for in smaller pieces. The choices are those of `policy`.
//!
//! One that has the host's memory is looked at for every growth, and gives what was seen at most.
//!
//! A device need not give all that it says is free. Where it refused a granule, that is how much
//! there is to choose by; the device is still asked, since others may have given some back.
//!
//! Keeps its part of I8: reserved bytes with those of growth under way never pass the limit.

use crate::config::Config;
use crate::counters::{Count, Counters};
use crate::error::RequestError;
use crate::policy::{self, SizeClass};
use crate::reservation::{self, Reserved};

/// What a request may know of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// What was seen before, which is not asked about: a capture leaves it at that.
    Past,
    /// What was seen before. Where a look is due, nothing is known to be left.
    Due,
    /// What was seen for this request.
    Fresh,
}

/// How many addresses a reservation asks for, by how many were refused since some were given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// None: room for the whole device.
    Whole,
    /// One. Large ranges may be refused alone, as under WSL, or others have most of the addresses:
    /// as much again as a list has, and no more than an eighth of the device.
    AsMuchAgain,
    /// Several: only what is needed.
    Needed,
}

/// Where the device refused a granule that it said was free.
#[derive(Clone, Copy, Debug)]
struct Ceiling {
    /// What was reserved.
    reserved_bytes: u64,
    /// What the device was thought to have beside what others held of it.
    own_bytes: u64,
}

/// What is known of the rest of the device. Methods take the statistics for what is reserved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headroom {
    pub(crate) config: Config,
    /// What the device had beside what others held of it, at the last look.
    own_bytes: u64,
    /// What other processes would give back of it.
    offered_bytes: u64,
    /// Where more was refused, if none was given beyond that since.
    ceiling: Option<Ceiling>,
    /// How much may be reserved before the device has to be looked at again.
    looked_until_bytes: u64,
    /// Bytes that plans under way will add to the reserved bytes.
    planned_bytes: u64,
    /// How many addresses are asked for.
    pub(crate) room: Room,
    /// A growth in large handles failed, none in single granules did after it, and no memory was
    /// given back since.
    pub(crate) lacks_memory: bool,
}

impl Headroom {
    /// Of a device that was never looked at.
    pub(crate) const fn new(config: Config) -> Self {
        Self {
            config,
            own_bytes: config.device_bytes,
            offered_bytes: 0,
            ceiling: None,
            looked_until_bytes: 0,
            planned_bytes: 0,
            room: Room::Whole,
            lacks_memory: false,
        }
    }

    // What is left.

    /// The device was looked at: so much of it is free, beside what this heap has reserved.
    pub(crate) const fn note_look(&mut self, stats: &mut Counters, free_bytes: u64) {
        let reserved_bytes = stats.all.reserved_bytes.current;
        self.own_bytes = free_bytes.saturating_add(reserved_bytes);
        if let Some(Ceiling { own_bytes, .. }) = self.ceiling
            && own_bytes < self.own_bytes
        {
            // Others hold less of it now.
            self.ceiling = None;
        }
        let until_next_bytes = if self.config.is_integrated { 0 } else { free_bytes / 8 };
        self.looked_until_bytes = reserved_bytes.saturating_add(until_next_bytes);
        stats.rare.device_looks += 1;
    }

    /// Other processes would give so much back to a request that is refused.
    pub(crate) const fn note_offered(&mut self, bytes: u64) {
        self.offered_bytes = bytes;
    }

    /// How much that is.
    pub(crate) const fn offered_bytes(&self) -> u64 {
        self.offered_bytes
    }

    /// What this heap may hold at most by what the device says.
    fn told_bytes(&self) -> u64 {
        self.own_bytes.min(self.config.limit_bytes)
    }

    /// What this heap may hold at most, by what the device gave, too.
    fn most_bytes(&self) -> u64 {
        let given_bytes = self.ceiling.map_or(u64::MAX, |ceiling| ceiling.reserved_bytes);
        given_bytes.min(self.told_bytes())
    }

    /// What is reserved, with what is under way.
    const fn growing_bytes(&self, stats: &Counters) -> u64 {
        stats.all.reserved_bytes.current + self.planned_bytes
    }

    /// What the device and the limit have left, by what the device says.
    pub(crate) fn told_left_bytes(&self, stats: &Counters) -> u64 {
        self.told_bytes().saturating_sub(self.growing_bytes(stats))
    }

    /// What the device and the limit have left.
    pub(crate) fn left_bytes(&self, stats: &Counters) -> u64 {
        self.most_bytes().saturating_sub(self.growing_bytes(stats))
    }

    /// The most that one request could be given if all that is not allocated were given back.
    pub(crate) fn most_for_one_bytes(&self, stats: &Counters, look: Look) -> u64 {
        let reserved_bytes = stats.all.reserved_bytes.current;
        let left_bytes = match look {
            Look::Fresh => self.told_left_bytes(stats),
            Look::Past | Look::Due => self.config.limit_bytes.saturating_sub(reserved_bytes),
        };
        left_bytes.saturating_add(reserved_bytes - stats.all.allocated_bytes.current())
    }

    /// Whether there is room to spare for so many bytes.
    pub(crate) fn is_roomy(&self, stats: &Counters, bytes: u64) -> bool {
        policy::is_roomy(self.config.prefer, bytes, self.left_bytes(stats), self.most_bytes())
    }

    /// Whether growth by so many bytes keeps within the limit, and within what the device has left
    /// as far as the request may know that.
    pub(crate) fn check(
        &self,
        stats: &Counters,
        bytes: u64,
        look: Look,
    ) -> Result<(), RequestError> {
        let (reserved_bytes, limit_bytes) = (self.growing_bytes(stats), self.config.limit_bytes);
        let due_bytes = reserved_bytes.saturating_add(bytes);
        if bytes > 0 && due_bytes > limit_bytes {
            return Err(RequestError::Limit { bytes, reserved_bytes, limit_bytes });
        }
        let is_left_at_that = look == Look::Past && !self.config.is_integrated;
        let is_known = bytes == 0 || is_left_at_that || due_bytes <= self.looked_until_bytes;
        let left_bytes = if look == Look::Due { 0 } else { self.told_left_bytes(stats) };
        if is_known || bytes <= left_bytes {
            return Ok(());
        }
        Err(RequestError::Device { bytes, left_bytes })
    }

    // In what pieces.

    /// How many granules new handles for a request get at most. Where memory is scarce, one: the
    /// next size may be refused.
    pub(crate) fn handle_granules(
        &self,
        stats: &Counters,
        class: SizeClass,
        asked_bytes: u64,
        is_roomy: bool,
    ) -> u16 {
        if self.lacks_memory {
            return 1;
        }
        let Config { granule_bytes, prefer, moves, left_per_handle, .. } = self.config;
        let is_staying = is_roomy && !moves;
        let share = if is_staying { policy::LEFT_PER_STAYING_HANDLE } else { left_per_handle };
        let left_bytes = self.left_bytes(stats);
        let held_bytes = self.most_bytes().saturating_sub(left_bytes);
        // What others give back serves large handles as well as what is left.
        let share_bytes = left_bytes.saturating_add(self.offered_bytes) / share.max(1);
        policy::handle_granules(
            class,
            prefer,
            moves,
            asked_bytes,
            held_bytes,
            share_bytes,
            granule_bytes,
        )
    }

    /// Bytes of addresses to reserve for so many; `None` beyond the range of sizes.
    pub(crate) fn reservation_bytes(
        &self,
        class: SizeClass,
        bytes: u64,
        reserved: Reserved,
    ) -> Option<u64> {
        let Config { device_bytes, granule_bytes, .. } = self.config;
        let (reserved, device_bytes) = match self.room {
            Room::Whole => (reserved, device_bytes),
            Room::AsMuchAgain => (Reserved { all_bytes: u64::MAX, ..reserved }, device_bytes / 8),
            Room::Needed => (reserved, 0),
        };
        reservation::bytes(class, bytes, reserved, device_bytes, granule_bytes)
    }

    // What became of it.

    /// A plan will add memory.
    pub(crate) const fn plan(&mut self, bytes: u64) {
        self.planned_bytes += bytes;
    }

    /// A plan of new memory is over.
    pub(crate) const fn end_plan(&mut self, bytes: u64) {
        assert!(bytes <= self.planned_bytes, "memory arrives that was not planned");
        self.planned_bytes -= bytes;
    }

    /// So many bytes were created, which are about to count as reserved.
    pub(crate) fn note_created(&mut self, stats: &Counters, bytes: u64) {
        if bytes > self.left_bytes(stats) {
            self.ceiling = None;
        }
    }

    /// A growth failed. Perhaps less would have been granted than large handles; if that fails,
    /// too, size is not the reason.
    pub(crate) const fn note_growth_failed(&mut self, has_large: bool) {
        self.lacks_memory = has_large;
    }

    /// The device refused a granule, when a growth had been given so many bytes. True if more was
    /// thought to be left.
    pub(crate) fn note_refused(&mut self, stats: &Counters, given_bytes: u64) -> bool {
        let before_bytes = self.left_bytes(stats);
        let reserved_bytes = self.growing_bytes(stats) + given_bytes;
        self.ceiling = Some(Ceiling { reserved_bytes, own_bytes: self.own_bytes });
        self.left_bytes(stats) < before_bytes
    }

    /// Memory was given back, which others may take: to create it again counts as growth.
    pub(crate) const fn note_given_back(&mut self, bytes: u64) {
        self.lacks_memory = false;
        self.looked_until_bytes = self.looked_until_bytes.saturating_sub(bytes);
    }

    /// A reservation was refused.
    pub(crate) const fn note_refused_addresses(&mut self) {
        self.room = match self.room {
            Room::Whole => Room::AsMuchAgain,
            Room::AsMuchAgain | Room::Needed => Room::Needed,
        };
    }

    /// Addresses were given back.
    pub(crate) const fn note_given_back_addresses(&mut self) {
        self.room = Room::Whole;
    }
}

/// Whether growth is refused for what is left, and not since the device is to be looked at first.
pub(crate) const fn is_too_much<T>(growth: &Result<T, RequestError>, look: Look) -> bool {
    match growth {
        Err(RequestError::Limit { .. }) => true,
        Err(RequestError::Device { .. }) => !matches!(look, Look::Due),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::SegmentKind;

    #[test]
    fn others_count_until_the_next_look() {
        let mut headroom = Headroom::new(Config::new(SegmentKind::Mapped, 2 << 20, 1000));
        let mut stats = Counters::default();
        stats.all.reserved_bytes.current = 300;
        let unknown = RequestError::Device { bytes: 1, left_bytes: 0 };
        assert_eq!(headroom.check(&stats, 1, Look::Due), Err(unknown));
        assert_eq!(headroom.left_bytes(&stats), 700);
        headroom.note_look(&mut stats, 400);
        assert_eq!((headroom.left_bytes(&stats), stats.rare.device_looks), (400, 1));
        headroom.plan(50);
        assert_eq!(headroom.left_bytes(&stats), 350);
        assert!(headroom.check(&stats, 0, Look::Due).is_ok());
        assert_eq!(headroom.check(&stats, 1, Look::Due), Err(unknown));
        assert!(headroom.check(&stats, 350, Look::Fresh).is_ok());
        let short = RequestError::Device { bytes: 351, left_bytes: 350 };
        assert_eq!(headroom.check(&stats, 351, Look::Fresh), Err(short));
        assert!(headroom.check(&stats, 351, Look::Past).is_ok());
        headroom.config.limit_bytes = 360;
        assert_eq!(headroom.left_bytes(&stats), 10);
        headroom.config.limit_bytes = u64::MAX;
        // Others gave back.
        headroom.end_plan(50);
        headroom.note_look(&mut stats, 700);
        assert_eq!(headroom.left_bytes(&stats), 700);
    }

    #[test]
    fn what_others_would_give_makes_handles_larger_and_is_not_left() {
        let device_bytes = 1 << 30;
        let mut headroom = Headroom::new(Config::new(SegmentKind::Mapped, 2 << 20, device_bytes));
        let mut stats = Counters::default();
        headroom.note_look(&mut stats, 64 << 20);
        let granules = |headroom: &Headroom| {
            headroom.handle_granules(&stats, SizeClass::Large, 128 << 20, false)
        };
        assert_eq!(granules(&headroom), 2);
        headroom.note_offered(960 << 20);
        assert_eq!(granules(&headroom), 32);
        assert_eq!(headroom.left_bytes(&stats), 64 << 20);
        assert!(headroom.check(&stats, 65 << 20, Look::Fresh).is_err());
    }

    #[test]
    fn what_the_device_refuses_is_not_left_until_it_gives_more_or_has_more() {
        let mut headroom = Headroom::new(Config::new(SegmentKind::Mapped, 2 << 20, 1000));
        let mut stats = Counters::default();
        stats.all.reserved_bytes.current = 300;
        headroom.note_look(&mut stats, 700);
        // A growth was given 20 bytes, and no more.
        assert!(headroom.note_refused(&stats, 20));
        assert!(!headroom.note_refused(&stats, 20), "known already");
        assert_eq!(headroom.left_bytes(&stats), 20);
        assert!(headroom.check(&stats, 100, Look::Fresh).is_ok(), "it is asked all the same");
        // What is given back can be had again.
        stats.all.reserved_bytes.current = 200;
        headroom.note_given_back(100);
        headroom.note_look(&mut stats, 800);
        assert_eq!(headroom.left_bytes(&stats), 120);
        headroom.note_created(&stats, 120);
        assert_eq!(headroom.left_bytes(&stats), 120);
        // It gave more.
        headroom.note_created(&stats, 121);
        assert_eq!(headroom.left_bytes(&stats), 800);
        // Others gave some back.
        headroom.note_refused(&stats, 0);
        headroom.note_look(&mut stats, 800);
        assert_eq!(headroom.left_bytes(&stats), 0);
        headroom.note_look(&mut stats, 801);
        assert_eq!(headroom.left_bytes(&stats), 801);
    }

    #[test]
    fn memory_of_the_host_is_looked_at_for_every_growth() {
        let config = Config::new(SegmentKind::Mapped, 2 << 20, 1000).with_host_memory(true);
        let mut headroom = Headroom::new(config);
        let mut stats = Counters::default();
        stats.all.reserved_bytes.current = 300;
        headroom.note_look(&mut stats, 400);
        let unknown = RequestError::Device { bytes: 1, left_bytes: 0 };
        assert_eq!(headroom.check(&stats, 1, Look::Due), Err(unknown), "others took it since");
        // A capture takes no more than was seen, either.
        for look in [Look::Past, Look::Fresh] {
            assert!(headroom.check(&stats, 400, look).is_ok());
            let short = RequestError::Device { bytes: 401, left_bytes: 400 };
            assert_eq!(headroom.check(&stats, 401, look), Err(short));
        }
        // The host has less than it had, and below the floor nothing.
        headroom.note_look(&mut stats, 0);
        let nothing = RequestError::Device { bytes: 1, left_bytes: 0 };
        assert_eq!(headroom.check(&stats, 1, Look::Fresh), Err(nothing));
        assert!(headroom.check(&stats, 0, Look::Fresh).is_ok(), "what is held serves");
    }

    #[test]
    fn what_was_given_back_is_looked_for_again() {
        let mut headroom = Headroom::new(Config::new(SegmentKind::Mapped, 2 << 20, 1000));
        let mut stats = Counters::default();
        stats.all.reserved_bytes.current = 300;
        headroom.note_look(&mut stats, 400);
        assert!(headroom.check(&stats, 50, Look::Due).is_ok());
        stats.all.reserved_bytes.current = 100;
        headroom.note_given_back(200);
        assert!(headroom.check(&stats, 50, Look::Due).is_ok());
        assert!(headroom.check(&stats, 51, Look::Due).is_err(), "others may have it by now");
    }
}
