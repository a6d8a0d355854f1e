//! [`BuildError`]: what options ask for that a device, or an allocator, has not; and the checks.

use drystone_core::Poisoned;
use drystone_driver::sizes::Thousandths;
use drystone_driver::{DeviceInfo, ShareableHandle};

use crate::options::{Backend, Options};

/// Why an allocator, or a pool of one, could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The backend asked for needs virtual memory management, which the device has not.
    #[error(
        "device {ordinal} has no virtual memory management, which backend:vmm and memory that \
         grows need; backend:malloc and backend:auto do without"
    )]
    NoVirtualMemory {
        /// The device.
        ordinal: u32,
    },
    /// The backend asked for needs memory pools of the driver's, which the device has not.
    #[error(
        "device {ordinal} has no stream-ordered memory pools; use backend:vmm, backend:malloc or \
         backend:auto"
    )]
    NoMemoryPools {
        /// The device.
        ordinal: u32,
    },
    /// Memory of the device cannot be given to other processes.
    #[error("memory of device {ordinal} cannot be shared; leave shareable out")]
    NotShareable {
        /// The device.
        ordinal: u32,
    },
    /// A pool cannot have this backend in an allocator of that one.
    #[error(
        "a pool of backend {pool:?} cannot be in an allocator of backend {allocator:?}: vmm and \
         malloc go together, async stands alone"
    )]
    OtherBackend {
        /// What the pool asked for.
        pool: Backend,
        /// What the allocator has.
        allocator: Backend,
    },
    /// A field of the options has a value that its key would not take.
    #[error("option {option} is {value}; it takes {takes}")]
    BadOption {
        /// The field.
        option: &'static str,
        /// Its value.
        value: String,
        /// What it takes.
        takes: &'static str,
    },
    /// The granule is smaller than the device's granularity.
    #[error(
        "a granule of {granule_bytes} bytes is below the device's granularity of \
         {granularity_bytes} bytes"
    )]
    GranuleTooSmall {
        /// The option's value.
        granule_bytes: u64,
        /// What the device maps at the least.
        granularity_bytes: u64,
    },
    /// The allocator is broken, and has no pools any more.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

/// Checks fields that were set without the parser.
pub(crate) fn check_options(options: &Options) -> Result<(), BuildError> {
    let bad = |option, value, takes| Err(BuildError::BadOption { option, value, takes });
    if !options.granule_bytes.is_power_of_two() || options.granule_bytes > 1 << 30 {
        return bad("granule_bytes", options.granule_bytes.to_string(), "a power of two to 1 GiB");
    }
    match options.limit_fraction {
        Some(f) if !(f > 0.0 && f <= 1.0) => {
            bad("limit_fraction", Thousandths(f).to_string(), "a number above 0 and at most 1")
        }
        _ => Ok(()),
    }
}

pub(crate) fn check_virtual_memory(
    info: &DeviceInfo,
    granule_bytes: u64,
) -> Result<(), BuildError> {
    let (ordinal, granularity_bytes) = (info.ordinal, info.granularity_bytes);
    if !info.has_virtual_memory {
        return Err(BuildError::NoVirtualMemory { ordinal });
    }
    if granule_bytes < granularity_bytes {
        return Err(BuildError::GranuleTooSmall { granule_bytes, granularity_bytes });
    }
    Ok(())
}

pub(crate) fn check_memory_pools(info: &DeviceInfo) -> Result<(), BuildError> {
    if !info.has_async_malloc {
        return Err(BuildError::NoMemoryPools { ordinal: info.ordinal });
    }
    Ok(())
}

/// Plain memory is shared in a way of its own, which asks for nothing.
pub(crate) fn check_sharing(info: &DeviceInfo, options: &Options) -> Result<(), BuildError> {
    let is_refused =
        options.is_shareable == Some(true) && info.shareable_handle == ShareableHandle::None;
    if is_refused { Err(BuildError::NotShareable { ordinal: info.ordinal }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::check_options;
    use crate::options::Options;

    #[test]
    fn fields_set_by_hand_are_checked_too() {
        let granule =
            |granule_bytes| check_options(&Options::default().with_granule_bytes(granule_bytes));
        assert!(granule(3 << 20).is_err() && granule(0).is_err() && granule(4 << 20).is_ok());
        for fraction in [f64::NAN, -1.0, 0.0, 1.5] {
            let options = Options::default().with_limit_fraction(fraction);
            assert!(check_options(&options).unwrap_err().to_string().contains("limit_fraction"));
        }
    }
}
