//! [`OpenError`]: why there is no device to work with.

/// Why no CUDA device could be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The driver's library is not there or cannot be loaded.
    #[error(
        "no CUDA driver: {tried} could not be loaded ({reason}); install the NVIDIA driver, or put \
         the folder of its library on the library path"
    )]
    NoLibrary {
        /// The names that were tried.
        tried: String,
        /// What the loader said to the last of them.
        reason: String,
    },
    /// What was found is the toolkit's stub, which programs are linked with: it does nothing.
    #[error(
        "the CUDA library that was found is the stub that CUDA's toolkit has for linking, not a \
         driver; take the folder `stubs` off the library path"
    )]
    StubLibrary,
    /// The process has another driver loaded, in which this one's memory and streams mean nothing.
    #[error(
        "two CUDA drivers in one process: {other} is loaded and is another file than the one that \
         was found; make libcuda.so a link to libcuda.so.1, or take one of them off the library \
         path"
    )]
    TwoDrivers {
        /// The name of the other.
        other: String,
    },
    /// The driver is older than what is needed.
    #[error(
        "the CUDA driver offers CUDA {}.{}, {}.{} or later is needed; update the NVIDIA driver",
        found / 1000, found % 1000 / 10, needed / 1000, needed % 1000 / 10
    )]
    DriverTooOld {
        /// The version it offers, as the driver writes it: 12040 is 12.4.
        found: u32,
        /// The version that is needed.
        needed: u32,
    },
    /// The driver's library lacks a function that every driver of that version has.
    #[error(
        "the CUDA driver has no function {name}; its library is incomplete: install the NVIDIA \
         driver anew"
    )]
    MissingSymbol {
        /// The function.
        name: &'static str,
    },
    /// There is no device.
    #[error("the CUDA driver sees no device; CUDA_VISIBLE_DEVICES may hide them")]
    NoDevice,
    /// There are devices, but not this one.
    #[error(
        "there is no CUDA device {ordinal}: the driver sees {count}, counted from 0; \
         CUDA_VISIBLE_DEVICES may hide some"
    )]
    NoSuchDevice {
        /// The one that was asked for.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },
    /// This process was forked from one that uses CUDA, which cannot be used in both.
    #[error(
        "CUDA cannot be used in a process forked from one that uses it; start it anew (`spawn`), \
         or fork before the first device is opened"
    )]
    Forked,
    /// The process is exiting, and the driver with it.
    #[error("the process is exiting: CUDA cannot be used any more")]
    Exiting,
    /// The driver refused a call.
    #[error("{call} failed: {name} (CUDA error {number})")]
    Driver {
        /// The call.
        call: &'static str,
        /// The driver's name for the error.
        name: &'static str,
        /// The driver's number for it.
        number: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::OpenError;

    #[test]
    fn versions_are_shown_as_people_write_them() {
        let error = OpenError::DriverTooOld { found: 11080, needed: 12000 };
        assert_eq!(
            error.to_string(),
            "the CUDA driver offers CUDA 11.8, 12.0 or later is needed; update the NVIDIA driver"
        );
    }

    #[test]
    fn a_device_that_is_not_there_is_named_with_how_many_are() {
        let text = OpenError::NoSuchDevice { ordinal: 3, count: 2 }.to_string();
        assert!(text.starts_with("there is no CUDA device 3: the driver sees 2"), "{text}");
    }

    #[test]
    fn a_refused_call_is_shown_with_name_and_number() {
        let name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
        let error = OpenError::Driver { call: "cuInit", name, number: 803 };
        assert_eq!(
            error.to_string(),
            "cuInit failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (CUDA error 803)"
        );
    }
}
