//! [`Budget`]: what a program may still ask for, before it asks.

/// What an allocator could still hand out at one moment. All figures in bytes.
///
/// Other threads and other processes take memory, too, so it is an estimate: good for choosing the
/// size of a cache, no promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Budget {
    /// Unused memory of the allocator's own that serves requests of any size.
    pub unused_bytes: u64,
    /// The largest free block: what one request may have of the rest.
    pub largest_free_bytes: u64,
    /// What may be taken from the device: free there, and within the limit.
    pub device_bytes: u64,
    /// The unit in which memory is taken from the device.
    pub unit_bytes: u64,
}

impl Budget {
    /// Whether one request of so many bytes would be served now: by the largest free block, or in
    /// whole units by unused memory and the device.
    pub const fn would_fit(&self, bytes: u64) -> bool {
        if bytes <= self.largest_free_bytes {
            return true;
        }
        match bytes.checked_next_multiple_of(self.unit_bytes) {
            Some(rounded) => rounded <= self.total_bytes(),
            None => false,
        }
    }

    /// The most that can be handed out in all, in large requests: without parts of a unit, of which
    /// [`largest_free_bytes`](Self::largest_free_bytes) may be one.
    pub const fn total_bytes(&self) -> u64 {
        self.unused_bytes + self.device_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::Budget;

    #[test]
    fn a_request_fits_into_one_block_or_into_whole_units() {
        let budget = Budget {
            unused_bytes: 4 << 20,
            largest_free_bytes: 7 << 20,
            device_bytes: 2 << 20,
            unit_bytes: 2 << 20,
        };
        assert!(budget.would_fit(7 << 20));
        assert!(!budget.would_fit((7 << 20) + 1), "6 MiB in whole units");
        let wide = Budget { device_bytes: 100 << 20, ..budget };
        assert!(wide.would_fit(104 << 20) && !wide.would_fit((104 << 20) + 1));
        assert!(!wide.would_fit(u64::MAX));
    }
}
