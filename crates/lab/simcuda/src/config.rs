//! [`Config`]: what `SIMCUDA_CONF=key:value,...` says of the driver and its devices.
//!
//! An unknown key or a value that cannot be is an error with the way out, never ignored.

use drystone_sim::{Harsh, Measured, Profile, SimConfig, settings};
use std::path::Path;

settings! {
    /// The settings of the driver and of one device.
    #[derive(Clone, Debug)]
    pub(crate) struct Config;

    /// How many devices there are.
    pub(crate) devices: usize = 1,
    /// Whether there are also those whose indices `CUDA_VISIBLE_DEVICES` names.
    pub(crate) named_devices: bool = false,
    /// `cuDeviceGetName`.
    pub(crate) name: String = "Drystone Simulated GPU".to_owned(),
    /// Streaming multiprocessors.
    pub(crate) multiprocessors: i32 = 132,
    /// Compute capability.
    pub(crate) compute: (i32, i32) = (9, 0),
    /// `cuDriverGetVersion`.
    pub(crate) driver_version: i32 = 13000,
    /// Whether a violation ends the process.
    pub(crate) strict: bool = false,
    /// Whether real memory lies behind device memory.
    pub(crate) backing: bool = false,
    /// The longest copy or memset that is done where there is real memory; longer ones take their
    /// place and leave nothing behind.
    pub(crate) backing_limit_bytes: u64 = u64::MAX,
    /// What each context takes of its device, in bytes.
    pub(crate) context_bytes: u64 = 0,
    /// What must be free on a device for what the driver makes there for itself, in bytes.
    pub(crate) driver_room_bytes: u64 = 0,
    /// What engines of convolutions ask for to work in, in bytes, where others are there that ask
    /// for barely anything.
    pub(crate) engine_bytes: u64 = 0,
    /// Whether functions that were asked for and do not exist are named on stderr.
    pub(crate) debug: bool = false,
    /// Whether NVML answers; else it says that it has no permission.
    pub(crate) nvml: bool = true,
    /// Whether a device that is reset goes by a clock of its own from then on.
    pub(crate) own_clock: bool = false,
    /// How long a kernel runs, in nanoseconds.
    pub(crate) kernel_ns: u64 = 0,
    /// Where statistics go at exit: a file, or `stderr`.
    pub(crate) stats: Option<String> = None,
    /// The device itself.
    pub(crate) sim: SimConfig = SimConfig { strict: true, ..SimConfig::default() },
}

/// Most devices: handles and addresses have room for these.
pub(crate) const DEVICES_MAX: usize = 64;

impl Config {
    /// These settings with what `text` says changed.
    pub(crate) fn with(mut self, text: &str) -> Result<Self, String> {
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part
                .split_once(':')
                .ok_or_else(|| format!("{part:?} is not of the form key:value"))?;
            self.set(key.trim(), value.trim())?;
        }
        Ok(self)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let harsh = &mut self.sim.harsh;
        match key {
            "devices" => self.devices = count(key, value, DEVICES_MAX as u64)? as usize,
            "named_devices" => self.named_devices = boolean(key, value)?,
            "name" => self.name = name(value)?,
            "multiprocessors" => self.multiprocessors = count(key, value, 1024)?.max(1) as i32,
            "compute" => self.compute = compute(value)?,
            "driver" => self.driver_version = count(key, value, 99_999)? as i32,
            "strict" => self.strict = boolean(key, value)?,
            "backing" => self.backing = boolean(key, value)?,
            "backing_limit" => self.backing_limit_bytes = count(key, value, u64::MAX)?,
            "context" if value == "0" => self.context_bytes = 0,
            "context" => self.context_bytes = bytes(key, value)?,
            "driver_room" => self.driver_room_bytes = bytes(key, value)?,
            "engine" => self.engine_bytes = bytes(key, value)?,
            "debug" => self.debug = boolean(key, value)?,
            "nvml" => self.nvml = boolean(key, value)?,
            "own_clock" => self.own_clock = boolean(key, value)?,
            "kernel_us" => self.kernel_ns = nanoseconds(key, value)?,
            "stats" => self.stats = Some(value.to_owned()),
            "memory" => self.sim.total_bytes = bytes(key, value)?,
            "overcommit" => self.sim.is_overcommitted = boolean(key, value)?,
            "process_limit" => self.sim.process_limit_bytes = bytes(key, value)?,
            "address_space" => self.sim.address_space_bytes = bytes(key, value)?,
            "mapping_limit" => self.sim.mapping_limit = count(key, value, u64::MAX)?,
            "vmm" => self.sim.has_virtual_memory = boolean(key, value)?,
            "pools" => self.sim.has_async_malloc = boolean(key, value)?,
            "shared" => self.sim.shared = Some(value.into()),
            "host_programs" | "host_line" | "host_handle" => self.set_host(key, value)?,
            "shareable" => self.sim.is_shareable = boolean(key, value)?,
            "oracle" => self.sim.oracle = boolean(key, value)?,
            "event_latency_us" => self.sim.event_latency_ns = nanoseconds(key, value)?,
            "event_jitter_us" => self.sim.event_jitter_ns = nanoseconds(key, value)?,
            "clock_jitter_us" => self.sim.clock_jitter_ns = nanoseconds(key, value)?,
            "check_kernel_us" => self.sim.check_kernel_ns = nanoseconds(key, value)?,
            "real_time" => self.sim.is_real_time = boolean(key, value)?,
            "calls_take_time" => self.sim.calls_take_time = boolean(key, value)?,
            "alias_limit" => self.sim.alias_limit = count(key, value, u64::MAX)?,
            "maps_under_hold" => self.sim.can_hold_streams = boolean(key, value)?,
            "maps_under_default_hold" => {
                self.sim.can_hold_default_stream = boolean(key, value)?;
            }
            "connections" => self.sim.connections = count(key, value, 32)? as usize,
            "launch_queue" => self.sim.launch_queue = count(key, value, 1 << 20)? as usize,
            "profile" => {
                let profile = Profile::named(value).ok_or_else(|| no_profile(value))?;
                self.sim = profile.applied_to(self.sim.clone());
            }
            "device" => {
                let device = Measured::read(Path::new(value)).map_err(|error| error.to_string())?;
                self.name = format!("Simulated {}", device.name);
                self.sim = device.applied_to(self.sim.clone());
            }
            "harsh" if boolean(key, value)? => self.sim.harsh = Harsh::ALL,
            "harsh" => self.sim.harsh = Harsh::NONE,
            "stale_handles_end" => harsh.stale_handles_end = boolean(key, value)?,
            "pool_attributes_are_illegal" => {
                harsh.pool_attributes_are_illegal = boolean(key, value)?;
            }
            "unproven_is_illegal" => harsh.unproven_is_illegal = boolean(key, value)?,
            "closed_memory_is_refused" => harsh.closed_memory_is_refused = boolean(key, value)?,
            "launches_are_early" => harsh.launches_are_early = boolean(key, value)?,
            "seed" => self.sim.seed = count(key, value, u64::MAX)?,
            _ => return Err(format!("{key:?} is not a setting; docs/use/simcuda.md lists them")),
        }
        Ok(())
    }

    fn set_host(&mut self, key: &str, value: &str) -> Result<(), String> {
        let bytes = if value == "0" { 0 } else { bytes(key, value)? };
        let host = self.sim.host.get_or_insert_default();
        match key {
            "host_programs" => host.programs_bytes = bytes,
            "host_line" => host.line_bytes = bytes,
            _ => host.handle_bytes = bytes,
        }
        Ok(())
    }
}

fn no_profile(value: &str) -> String {
    let names = Profile::ALL.map(Profile::name).join(", ");
    format!("profile is one of {names}, not {value:?}")
}

fn boolean(key: &str, value: &str) -> Result<bool, String> {
    value.parse().map_err(|_| format!("{key} is true or false, not {value:?}"))
}

fn count(key: &str, value: &str, max: u64) -> Result<u64, String> {
    let number = value.parse().ok().filter(|number| (0..=max).contains(number));
    number.ok_or_else(|| format!("{key} is a number up to {max}, not {value:?}"))
}

/// What a program has room for, without what ends a text in C.
fn name(value: &str) -> Result<String, String> {
    let is_one = (1..96).contains(&value.len()) && !value.contains('\0');
    is_one.then(|| value.to_owned()).ok_or_else(|| format!("name has 1 to 95 bytes, not {value:?}"))
}

fn compute(value: &str) -> Result<(i32, i32), String> {
    let parts = value.split_once('.');
    let parsed = parts.and_then(|(major, minor)| {
        Some((major.parse::<u8>().ok()?.into(), minor.parse::<u8>().ok()?.into()))
    });
    parsed.ok_or_else(|| format!("compute is a capability such as 9.0, not {value:?}"))
}

fn nanoseconds(key: &str, value: &str) -> Result<u64, String> {
    let number: Option<f64> = value.parse().ok().filter(|us| (0.0..1e12).contains(us));
    let number = number.ok_or_else(|| format!("{key} is in microseconds, not {value:?}"))?;
    Ok((number * 1e3).round() as u64)
}

/// `80GiB`, `512MiB`, `1.5G` or bytes; at least 2 MiB and at most 64 TiB.
fn bytes(key: &str, value: &str) -> Result<u64, String> {
    let bytes = drystone_driver::sizes::parse_size(value).ok();
    bytes
        .filter(|bytes| (2 << 20..=64 << 40).contains(bytes))
        .ok_or_else(|| format!("{key} is a size from 2MiB to 64TiB, such as 80GiB, not {value:?}"))
}

#[cfg(test)]
mod tests {
    use super::Config;
    use drystone_sim::{Harsh, NetworkMemory};
    use std::path::Path;

    #[test]
    fn every_key_is_read() {
        let text = "memory:1.5GiB, devices:2,compute:8.6,driver:12080,strict:true,backing:true,\
                    debug:true,kernel_us:2.5,stats:stderr,address_space:1TiB,mapping_limit:9,\
                    vmm:false,pools:false,shareable:false,shared:gpu,oracle:true,\
                    event_latency_us:3,event_jitter_us:4,clock_jitter_us:5,check_kernel_us:6,\
                    calls_take_time:true,real_time:true,\
                    seed:7,own_clock:true,alias_limit:8,launch_queue:10,\
                    maps_under_hold:false,maps_under_default_hold:false,\
                    connections:8,profile:wsl2,harsh:true,nvml:false,\
                    launches_are_early:false,unproven_is_illegal:false,\
                    name:NVIDIA A10,multiprocessors:72,overcommit:true,\
                    named_devices:true,process_limit:1GiB,\
                    backing_limit:65536,engine:3GiB,context:400MiB,\
                    host_programs:3MiB,host_line:2MiB,host_handle:4MiB";
        let config = Config::default().with(text).unwrap();
        assert_eq!((config.devices, config.compute, config.driver_version), (2, (8, 6), 12080));
        assert_eq!((config.name.as_str(), config.multiprocessors), ("NVIDIA A10", 72));
        assert!(config.sim.is_overcommitted && config.named_devices);
        assert_eq!(config.sim.process_limit_bytes, 1 << 30);
        assert_eq!((config.backing_limit_bytes, config.engine_bytes), (65536, 3 << 30));
        assert_eq!(config.context_bytes, 400 << 20);
        assert_eq!(config.with("context:0").unwrap().context_bytes, 0);
        let config = Config::default().with(text).unwrap();
        assert!(config.strict && config.backing && config.debug && config.own_clock);
        assert_eq!((config.kernel_ns, config.stats.as_deref()), (2500, Some("stderr")));
        let sim = &config.sim;
        assert_eq!((sim.total_bytes, sim.address_space_bytes), (3 << 29, 1 << 40));
        assert!(!sim.has_virtual_memory && !sim.has_async_malloc && !sim.is_shareable);
        assert_eq!(sim.shared.as_deref(), Some(Path::new("gpu")));
        assert!(sim.oracle && sim.calls_take_time && sim.is_real_time && !config.nvml);
        assert_eq!((sim.event_latency_ns, sim.event_jitter_ns), (3000, 4000));
        assert_eq!((sim.clock_jitter_ns, sim.check_kernel_ns), (5000, 6000));
        assert_eq!((sim.seed, sim.mapping_limit), (7, 9));
        assert_eq!((sim.alias_limit, sim.launch_queue, sim.can_hold_streams), (8, 10, false));
        assert_eq!((sim.can_hold_default_stream, sim.connections), (false, 8));
        assert_eq!(sim.network_memory, NetworkMemory::Broken);
        let host = sim.host.as_ref().unwrap();
        let host = [host.programs_bytes, host.line_bytes, host.handle_bytes];
        assert_eq!(host, [3 << 20, 2 << 20, 4 << 20]);
        let kinder = Harsh { launches_are_early: false, unproven_is_illegal: false, ..Harsh::ALL };
        assert_eq!(sim.harsh, kinder);
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_name() {
        for (text, part) in [
            ("memory", "key:value"),
            ("memroy:80GiB", "memroy"),
            ("memory:80Gigs", "80Gigs"),
            ("memory:1KiB", "2MiB"),
            ("memory:-1GiB", "memory"),
            ("strict:yes", "true or false"),
            ("devices:65", "64"),
            ("compute:9", "compute"),
            ("name:", "95 bytes"),
            ("event_latency_us:NaN", "microseconds"),
            ("seed:-1", "seed"),
            ("profile:h100", "bare-metal"),
        ] {
            let message = Config::default().with(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
        assert!(Config::default().with(" , ").is_ok());
    }
}
