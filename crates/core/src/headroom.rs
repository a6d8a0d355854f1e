//! Headroom: how much more memory the device and the limit would give, as far as that is known.
//!
//! What others hold of the device is only known from a look at it, which can take milliseconds: one
//! is asked for when memory is about to be created that may not be there, and at the latest when an
//! eighth of what was left is created. Between looks the heap's own growth is counted.

/// What is known of the rest of the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headroom {
    /// What the device had beside what others held of it, at the last look.
    own_bytes: u64,
    /// How much may be reserved before the device has to be looked at again.
    looked_until_bytes: u64,
}

impl Headroom {
    /// Of a device that was never looked at.
    pub(crate) const fn new(device_bytes: u64) -> Self {
        Self { own_bytes: device_bytes, looked_until_bytes: 0 }
    }

    /// The device was looked at: so much of it is free, beside what this heap has reserved.
    pub(crate) const fn note_look(&mut self, free_bytes: u64, reserved_bytes: u64) {
        self.own_bytes = free_bytes.saturating_add(reserved_bytes);
        self.looked_until_bytes = reserved_bytes.saturating_add(free_bytes / 8);
    }

    /// Whether to look at the device before so much is reserved in all.
    pub(crate) const fn is_look_due(&self, reserved_bytes: u64) -> bool {
        reserved_bytes > self.looked_until_bytes
    }

    /// What is left of the device, and of a limit, beside what is reserved.
    pub(crate) const fn left_bytes(&self, reserved_bytes: u64, limit_bytes: u64) -> u64 {
        let most = if self.own_bytes < limit_bytes { self.own_bytes } else { limit_bytes };
        most.saturating_sub(reserved_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::Headroom;

    #[test]
    fn others_count_until_the_next_look() {
        let mut headroom = Headroom::new(1000);
        assert!(headroom.is_look_due(1));
        assert_eq!(headroom.left_bytes(300, u64::MAX), 700);
        headroom.note_look(400, 300);
        assert_eq!(headroom.left_bytes(300, u64::MAX), 400);
        assert_eq!(headroom.left_bytes(350, u64::MAX), 350);
        assert_eq!(headroom.left_bytes(350, 360), 10);
        assert!(!headroom.is_look_due(350) && headroom.is_look_due(351));
        // Others gave back.
        headroom.note_look(700, 300);
        assert_eq!(headroom.left_bytes(300, u64::MAX), 700);
    }
}
