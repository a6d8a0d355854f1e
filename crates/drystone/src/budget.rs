//! [`Budget`]: what a program may still ask for, before it asks.

use drystone_driver::DriverError;

use crate::allocator::Allocator;
use crate::room::in_room;
use crate::source::Books;

/// What an allocator could still hand out at one moment. All figures in bytes.
///
/// Other threads and other processes take memory, too, so it is an estimate: good for choosing the
/// size of a cache, no promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Whether a request of so many bytes would be served now.
    pub const fn would_fit(&self, bytes: u64) -> bool {
        if bytes <= self.largest_free_bytes {
            return true;
        }
        match bytes.checked_next_multiple_of(self.unit_bytes) {
            Some(rounded) => rounded <= self.total_bytes(),
            None => false,
        }
    }

    /// The most that can be handed out in all, in large requests.
    pub const fn total_bytes(&self) -> u64 {
        self.unused_bytes + self.device_bytes
    }
}

impl Allocator {
    /// What can still be had: to size a key-value cache, or to choose a batch.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// let device = SimDevice::new(SimConfig { total_bytes: 1 << 30, ..SimConfig::default() });
    /// let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// let weights = allocator.allocate(stream, 700 << 20)?;
    /// let budget = allocator.budget()?;
    /// assert!(budget.would_fit(324 << 20) && !budget.would_fit(325 << 20));
    /// drop(weights); // unused now, and as good as free on the device
    /// assert!(allocator.budget()?.would_fit(1 << 30));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The driver cannot say how much memory is free.
    pub fn budget(&self) -> Result<Budget, DriverError> {
        in_room!(self, device => {
            let free_bytes = device.driver.memory_info()?.free_bytes;
            let books = device.books.lock();
            let reserved_bytes = books.stats().all.reserved_bytes.current;
            let within_limit_bytes = books.limit_bytes().saturating_sub(reserved_bytes);
            Ok(Budget {
                unused_bytes: books.unused_bytes(),
                largest_free_bytes: books.largest_free_bytes(),
                device_bytes: free_bytes.min(within_limit_bytes),
                unit_bytes: books.unit_bytes(),
            })
        })
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
