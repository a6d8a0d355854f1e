//! What tests ask of the simulated `libcuda.so.1` they run on: its control functions, in Rust.
//!
//! ```no_run
//! use drystone_testkit::SimCuda;
//!
//! let sim = SimCuda::find()?; // fails plainly on a real driver
//! sim.reset_device(0, "memory:1GiB,oracle:true")?;
//! sim.fail(0, "cuMemCreate", 2, false, 2)?; // the second call from now on: out of memory
//! // ... the program under test ...
//! assert_eq!(sim.live_objects(0), "");
//! assert_eq!(sim.violations(0), Vec::<String>::new());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Keeps: nothing here calls CUDA, and a real driver is never taken for a simulated one.

use libloading::os::unix::{Library, Symbol};
use std::ffi::{CString, c_char, c_int, c_void};

/// Why there is no simulated driver here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotSimulated {
    /// There is no `libcuda.so.1` that the process could load.
    #[error(
        "no libcuda.so.1 to load: build the simulated one with `cargo xtask simcuda` and put its \
         folder into LD_LIBRARY_PATH"
    )]
    Absent(#[source] libloading::Error),
    /// The `libcuda.so.1` of this process is no simulated one, or an older one.
    #[error(
        "libcuda.so.1 has no function {missing}, so it is not the simulated one of this version"
    )]
    Real {
        /// The control function that it lacks.
        missing: &'static str,
    },
}

/// A control function refused what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{function} failed with CUDA error {status}")]
pub struct Refused {
    /// The control function.
    pub function: &'static str,
    /// The error, by CUDA's number: 101 for a device that does not exist, 1 for a bad argument.
    pub status: i32,
}

/// A stream as CUDA passes it around; null, 1 and 2 are the default streams.
pub type StreamHandle = *mut c_void;

type Writer = unsafe extern "C" fn(c_int, *mut c_char, u64) -> u64;

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// The simulated driver of this process. It stays loaded forever.
        pub struct SimCuda {
            $($name: Symbol<unsafe extern "C" fn($($argument),*) -> $result>,)*
        }

        impl SimCuda {
            fn from_library(library: &Library) -> Result<Self, NotSimulated> {
                Ok(Self {
                    $($name: {
                        // SAFETY: a library that has this name is the simulated driver, which
                        // gives it this signature.
                        let found = unsafe { library.get(stringify!($name).as_bytes()) };
                        found.map_err(|_| NotSimulated::Real { missing: stringify!($name) })?
                    },)*
                })
            }
        }
    };
}

functions! {
    simcuda_configure: fn(*const c_char) -> c_int;
    simcuda_reset_device: fn(c_int, *const c_char) -> c_int;
    simcuda_launch: fn(c_int, StreamHandle, u64) -> c_int;
    simcuda_advance_ns: fn(c_int, u64) -> c_int;
    simcuda_now_ns: fn(c_int) -> u64;
    simcuda_check_alloc: fn(c_int, u64, u64, StreamHandle) -> c_int;
    simcuda_check_use: fn(c_int, u64, StreamHandle) -> c_int;
    simcuda_check_free: fn(c_int, u64) -> c_int;
    simcuda_violation_count: fn(c_int) -> u64;
    simcuda_violations: fn(c_int, *mut c_char, u64) -> u64;
    simcuda_calls: fn(c_int) -> u64;
    simcuda_physical_bytes: fn(c_int) -> u64;
    simcuda_peak_physical_bytes: fn(c_int) -> u64;
    simcuda_place_used_bytes: fn(c_int) -> u64;
    simcuda_live_objects: fn(c_int, *mut c_char, u64) -> u64;
    simcuda_fail: fn(c_int, *const c_char, u64, c_int, c_int) -> c_int;
    simcuda_clear_faults: fn(c_int) -> c_int;
    simcuda_faults_fired: fn(c_int) -> u64;
    simcuda_lose_context: fn(c_int) -> c_int;
    simcuda_begin_exit: fn(c_int) -> c_int;
    simcuda_count: fn(*const c_char) -> c_int;
    simcuda_stats_json: fn(*mut c_char, u64) -> u64;
}

impl std::fmt::Debug for SimCuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimCuda")
    }
}

/// Calls a control function that answers with a status.
macro_rules! ask {
    ($self:ident.$name:ident($($argument:expr),*)) => {{
        // SAFETY: the function takes any values and answers with an error number.
        let status = unsafe { ($self.$name)($($argument),*) };
        if status == 0 { Ok(()) } else { Err(Refused { function: stringify!($name), status }) }
    }};
}

/// Calls a control function that answers with a number.
macro_rules! number {
    ($self:ident.$name:ident($($argument:expr),*)) => {{
        // SAFETY: the function takes any values; for a device that does not exist it says 0.
        unsafe { ($self.$name)($($argument),*) }
    }};
}

fn c_string(function: &'static str, text: &str) -> Result<CString, Refused> {
    CString::new(text).map_err(|_| Refused { function, status: 1 })
}

/// Methods that pass on to a control function of a device, which answers with a status or a number.
macro_rules! of_device {
    (asks { $($(#[$doc:meta])* $name:ident = $function:ident($($value:ident: $type:ty),*);)* }
     counts { $($(#[$about:meta])* $count:ident = $counts:ident;)* }) => {
        impl SimCuda {
            $($(#[$doc])*
            /// Errors: there is no such device or stream.
            pub fn $name(&self, ordinal: u32, $($value: $type),*) -> Result<(), Refused> {
                ask!(self.$function(ordinal as c_int $(, $value)*))
            })*

            $($(#[$about])*
            pub fn $count(&self, ordinal: u32) -> u64 {
                number!(self.$counts(ordinal as c_int))
            })*
        }
    };
}

of_device! {
    asks {
        /// Queues a kernel that runs for so many nanoseconds.
        launch = simcuda_launch(stream: StreamHandle, ns: u64);
        /// Moves the host's time forward.
        advance_ns = simcuda_advance_ns(ns: u64);
        /// Tells the oracle that an allocator has handed out a block, which a kernel uses at once.
        check_alloc = simcuda_check_alloc(address: u64, bytes: u64, stream: StreamHandle);
        /// Tells the oracle that a kernel uses a live block.
        check_use = simcuda_check_use(address: u64, stream: StreamHandle);
        /// Tells the oracle that a block is about to be freed, before the allocator learns of it.
        check_free = simcuda_check_free(address: u64);
        /// Removes all planned failures.
        clear_faults = simcuda_clear_faults();
        /// A kernel has faulted: from now on every call to the device is refused.
        lose_context = simcuda_lose_context();
        /// The process is exiting: from now on every call to the device is refused, and is a
        /// violation.
        begin_exit = simcuda_begin_exit();
    }
    counts {
        /// The host's time, in nanoseconds since the process's first device was made.
        now_ns = simcuda_now_ns;
        /// Violations so far: of the oracle, and calls that no correct program makes.
        violation_count = simcuda_violation_count;
        /// How many driver calls were made, refused ones included and questions not.
        calls = simcuda_calls;
        /// Physical memory in use, in bytes.
        physical_bytes = simcuda_physical_bytes;
        /// The most physical memory that was ever in use at one time, in bytes.
        peak_physical_bytes = simcuda_peak_physical_bytes;
        /// What is in use of the device at a place of the machine, in bytes, as NVML tells it.
        place_used_bytes = simcuda_place_used_bytes;
        /// How many calls have failed by plan since the plans were last cleared.
        faults_fired = simcuda_faults_fired;
    }
}

impl SimCuda {
    /// The simulated driver this process has loaded or would load.
    /// Errors: there is no `libcuda.so.1`, or it is a real one.
    pub fn find() -> Result<Self, NotSimulated> {
        // SAFETY: loading a CUDA driver, simulated or real, runs its initialisers, which any
        // program that uses CUDA does.
        let library = unsafe { Library::new("libcuda.so.1") }.map_err(NotSimulated::Absent)?;
        let found = Self::from_library(&library);
        std::mem::forget(library);
        found
    }

    /// Changes the environment's settings for this process, before anybody has looked at a device.
    /// Errors: the devices have been made already, or a setting that is not one.
    pub fn configure(&self, conf: &str) -> Result<(), Refused> {
        let conf = c_string("simcuda_configure", conf)?;
        ask!(self.simcuda_configure(conf.as_ptr()))
    }

    /// Replaces a device by a fresh one, which goes by `conf` (as in `SIMCUDA_CONF`) over the
    /// environment's settings. All handles of the old one are dead; contexts live on.
    /// Errors: no such device, or a setting that is not one.
    pub fn reset_device(&self, ordinal: u32, conf: &str) -> Result<(), Refused> {
        let conf = c_string("simcuda_reset_device", conf)?;
        ask!(self.simcuda_reset_device(ordinal as c_int, conf.as_ptr()))
    }

    /// The texts of the violations, the first thousand of them.
    pub fn violations(&self, ordinal: u32) -> Vec<String> {
        self.text(ordinal, &self.simcuda_violations).lines().map(str::to_owned).collect()
    }

    /// What has not been given back, a line for each kind; empty after a clean teardown.
    pub fn live_objects(&self, ordinal: u32) -> String {
        self.text(ordinal, &self.simcuda_live_objects)
    }

    /// Makes the `nth` call of a function from now on (counted from 1) fail with a CUDA error, and
    /// every later one if `for_ever`. Names are those of the driver or the runtime API, with or
    /// without version.
    /// Errors: no such device.
    pub fn fail(
        &self,
        ordinal: u32,
        cuda_name: &str,
        nth: u64,
        for_ever: bool,
        cuda_error: i32,
    ) -> Result<(), Refused> {
        let name = c_string("simcuda_fail", cuda_name)?;
        let (ordinal, for_ever) = (ordinal as c_int, c_int::from(for_ever));
        ask!(self.simcuda_fail(ordinal, name.as_ptr(), nth, for_ever, cuda_error))
    }

    /// Counts a call of a library that is only a stub, by its name.
    /// Errors: a name with a NUL in it.
    pub fn count(&self, name: &str) -> Result<(), Refused> {
        let name = c_string("simcuda_count", name)?;
        ask!(self.simcuda_count(name.as_ptr()))
    }

    /// Statistics of the process, as JSON.
    pub fn stats_json(&self) -> String {
        read(|out, room| number!(self.simcuda_stats_json(out, room)))
    }

    fn text(&self, ordinal: u32, writer: &Symbol<Writer>) -> String {
        // SAFETY: the function writes at most `room` bytes, and a NUL among them.
        read(|out, room| unsafe { writer(ordinal as c_int, out, room) })
    }
}

/// Reads a text by asking for its size first, again where it has grown meanwhile.
fn read(write: impl Fn(*mut c_char, u64) -> u64) -> String {
    let mut text: Vec<u8> = Vec::new();
    loop {
        let bytes = write(text.as_mut_ptr().cast(), text.len() as u64);
        if bytes < text.len() as u64 {
            text.truncate(bytes as usize);
            return String::from_utf8_lossy(&text).into_owned();
        }
        text.resize(bytes as usize + 1, 0);
    }
}

#[cfg(test)]
mod tests;
