//! Statistics, as a struct and as JSON, and snapshots.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use drystone::{Choices, Gauge, Neighbour, SizeClassStats};
use drystone_process::neighbours::{Exchange, Exchanges};
use drystone_process::registered::{self, Kept};

use crate::barrier::{answer, barrier};
use crate::device::Device;
use crate::out::{not_null, put};
use crate::status::{Failure, Status};
use crate::{process, registry, snapshot};

/// One quantity over time.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct CGauge {
    /// Now.
    pub current: u64,
    /// The largest it ever was, or since `drystone_reset_peaks`.
    pub peak: u64,
    /// Sum of all that was ever added. What was taken away is this less `current`.
    pub total: u64,
}

/// Statistics of the blocks of one size: small ones, up to 1 MiB, or large ones. The fields mean
/// what they mean in `struct drystone_stats`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct CSizeClassStats {
    /// See there.
    pub requested_bytes: CGauge,
    /// See there.
    pub allocated_bytes: CGauge,
    /// See there.
    pub active_bytes: CGauge,
    /// See there. Unused memory that belongs to neither size is in `struct drystone_stats` alone.
    pub reserved_bytes: CGauge,
    /// See there.
    pub allocations: CGauge,
    /// See there.
    pub active_blocks: CGauge,
    /// See there.
    pub segments: CGauge,
}

/// How often a request that its own free memory could not serve was answered in which way.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct CChoices {
    /// Memory was created.
    pub growths: u64,
    /// Free granules were remapped.
    pub remaps: u64,
    /// The stream was made to wait for others.
    pub waits: u64,
}

/// Statistics of a device. Sizes in bytes. Requested <= allocated <= active <= reserved, except
/// that requested and active still count a block that is pending.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct CStats {
    /// Set it to `sizeof(struct drystone_stats)` before the call. No more is written than that, and
    /// this field becomes what was written: a later version appends fields.
    pub struct_size: usize,
    /// What the program asked for, of blocks that are live or pending.
    pub requested_bytes: CGauge,
    /// Live blocks, after rounding.
    pub allocated_bytes: CGauge,
    /// Live and pending blocks. Pending is freed by the program, but maybe still in use on another
    /// stream.
    pub active_bytes: CGauge,
    /// Physical memory held from the driver.
    pub reserved_bytes: CGauge,
    /// Number of live blocks.
    pub allocations: CGauge,
    /// Number of live and pending blocks.
    pub active_blocks: CGauge,
    /// Number of segments.
    pub segments: CGauge,
    /// Blocks that were taken from another stream's free memory.
    pub cross_stream_reuses: u64,
    /// Freed, but not used before the device was idle, since its last use could not be recorded.
    pub quarantined_bytes: u64,
    /// Physical memory of the device.
    pub device_bytes: u64,
    /// Granules of free blocks that were remapped to back requests, in all.
    pub granule_remaps: u64,
    /// Memory, event, stream and synchronisation calls of the driver's; what only asks is not
    /// counted.
    pub driver_calls: u64,
    /// Of blocks up to 1 MiB.
    pub small: CSizeClassStats,
    /// Of larger blocks.
    pub large: CSizeClassStats,
    /// Requests that had memory given back before they were served or refused.
    pub retries: u64,
    /// Granules that are mapped away from home now.
    pub remapped_granules: u64,
    /// Mappings now beyond those of homes: of windows, in use or idle.
    pub aliases: u64,
    /// Addresses of these that back nothing now, in bytes: their granules back other addresses.
    pub alias_bytes: u64,
    /// Memory that is pinned, in whole handles.
    pub pinned_bytes: u64,
    /// What misses were answered with, with room to spare: time counts more than memory.
    pub with_room: CChoices,
    /// The same without: memory counts more than time.
    pub under_pressure: CChoices,
    /// How often the device was asked how much of it is free.
    pub device_looks: u64,
}

impl From<Choices> for CChoices {
    fn from(choices: Choices) -> Self {
        let Choices { growths, remaps, waits, .. } = choices;
        CChoices { growths, remaps, waits }
    }
}

impl From<Gauge> for CGauge {
    fn from(gauge: Gauge) -> Self {
        CGauge { current: gauge.current, peak: gauge.peak, total: gauge.total }
    }
}

impl From<&SizeClassStats> for CSizeClassStats {
    fn from(class: &SizeClassStats) -> Self {
        CSizeClassStats {
            requested_bytes: class.requested_bytes.into(),
            allocated_bytes: class.allocated_bytes.into(),
            active_bytes: class.active_bytes.into(),
            reserved_bytes: class.reserved_bytes.into(),
            allocations: class.allocations.into(),
            active_blocks: class.active_blocks.into(),
            segments: class.segments.into(),
        }
    }
}

impl CStats {
    fn new(device: &Device, struct_size: usize) -> Self {
        let stats = device.allocator.stats();
        let (all, [small, large]) = (&stats.all, &stats.classes);
        let remaps = device.allocator.remap_stats();
        CStats {
            struct_size,
            requested_bytes: all.requested_bytes.into(),
            allocated_bytes: all.allocated_bytes.into(),
            active_bytes: all.active_bytes.into(),
            reserved_bytes: all.reserved_bytes.into(),
            allocations: all.allocations.into(),
            active_blocks: all.active_blocks.into(),
            segments: all.segments.into(),
            cross_stream_reuses: stats.cross_stream_reuses,
            quarantined_bytes: stats.quarantined_bytes,
            device_bytes: device.driver.info().total_bytes,
            granule_remaps: stats.granule_remaps,
            driver_calls: device.driver_calls(),
            small: small.into(),
            large: large.into(),
            retries: stats.retries,
            remapped_granules: remaps.remapped_granules,
            aliases: remaps.aliases,
            alias_bytes: remaps.alias_bytes(),
            pinned_bytes: remaps.pinned_bytes,
            with_room: stats.with_room.into(),
            under_pressure: stats.under_pressure.into(),
            device_looks: stats.device_looks,
        }
    }
}

/// Writes the statistics of a device to `stats`, whose `struct_size` is set.
///
/// Statuses: INVALID_VALUE (`stats` is null, or its size is below that of the first field),
/// INVALID_DEVICE, BAD_OPTION, NO_DRIVER, EXITING, FORKED. Any thread.
///
/// # Safety
/// `stats` is null or points to `struct_size` writable bytes, of which the first are that field.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_get_stats(device: c_int, stats: *mut CStats) -> Status {
    answer(|| {
        not_null(stats, "stats")?;
        // SAFETY: not null, and the field is there by the caller's word.
        let size = unsafe { stats.cast::<usize>().read_unaligned() };
        if size < size_of::<usize>() {
            let message = format!("struct_size is {size}; set it to sizeof(struct drystone_stats)");
            return Err(Failure::new(Status::InvalidValue, message));
        }
        process::check()?;
        let device = registry::get(device)?;
        let written = size.min(size_of::<CStats>());
        let found = CStats::new(device, written);
        let from = (&raw const found).cast::<u8>();
        // SAFETY: the program's struct has as many bytes by the caller's word, ours has no fewer.
        unsafe { from.copy_to(stats.cast::<u8>(), written) };
        Ok(())
    })
}

/// Sets every peak of a device's statistics, also by pool and stream, to its current value.
///
/// Statuses: INVALID_DEVICE, BAD_OPTION, NO_DRIVER, EXITING, FORKED. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_reset_peaks(device: c_int) -> Status {
    answer(|| {
        process::check()?;
        registry::get(device)?.allocator.reset_peaks();
        Ok(())
    })
}

/// The devices in use, as a set of bits: bit 0 is device 0. Opens none. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_devices_in_use() -> u64 {
    barrier(0, || registry::in_use().fold(0, |bits, device| bits | 1 << device.ordinal))
}

/// Writes the statistics of a device as JSON to `out`, ending with a NUL, and the number of bytes
/// that takes with it to `needed`, if that is not null. With a size of 0 nothing is written.
///
/// The keys are those of `struct drystone_stats`, each a number or an object with `current`, `peak`
/// and `total`; `small` (blocks up to 1 MiB) and `large` have the same. Beside them:
/// `host_floor_bytes`; `moves`, handles emptied by moving live memory, and `moved_bytes`, copied
/// by that; `beside_live_bytes`, unused granules in handles with live memory; and `on_host_bytes`,
/// held in the host's memory. Reserved bytes count both, the latter since room is kept for its
/// return, and quarantined bytes, but no aliases.
/// `tags` has an object for each name that `drystone_tag` was given, with `current` and `peak`, in
/// bytes of live blocks. `neighbours` tells of other processes on the device: `others` is a list of
/// those that hold memory, `last` one of what went from and to them of late, `given_bytes`,
/// `given`, `taken_bytes` and `taken` are sums of that, and `idle_bytes` went back since nobody
/// used it for long.
/// `registered` has an object for each call of a library's by which memory is registered now, and
/// stays where it is: how many `ranges`, and their `bytes`. `shared` has one for each call of the
/// driver by which others got to know memory, which does not move while it is live: how many
/// `handles`, and their `bytes`.
/// Statuses: BUFFER_TOO_SMALL (nothing is written), INVALID_VALUE (`out` is null and `size` is not
/// 0), INVALID_DEVICE, BAD_OPTION, NO_DRIVER, EXITING, FORKED. Any thread.
///
/// # Safety
/// `out` points to `size` writable bytes, `needed` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_stats_json(
    device: c_int,
    out: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> Status {
    answer(|| {
        if size > 0 {
            not_null(out, "out")?;
        }
        process::check()?;
        let device = registry::get(device)?;
        let mut text = json(device);
        text.push('\0');
        // SAFETY: by the caller's word.
        unsafe { put(needed, text.len()) };
        if size == 0 {
            return Ok(());
        }
        if size < text.len() {
            let message = format!("a buffer of {size} bytes; the text needs {}", text.len());
            return Err(Failure::new(Status::BufferTooSmall, message));
        }
        // SAFETY: the buffer is as large by the caller's word.
        unsafe { text.as_ptr().cast::<c_char>().copy_to(out, text.len()) };
        Ok(())
    })
}

/// By hand: with `serde_json` the library is 62 kB larger. Writing to a text cannot fail.
fn json(device: &Device) -> String {
    let (stats, remaps) = (device.allocator.stats(), device.allocator.remap_stats());
    let mut text = String::from("{");
    gauges(&mut text, &stats.all);
    for (name, number) in [
        ("cross_stream_reuses", stats.cross_stream_reuses),
        ("quarantined_bytes", stats.quarantined_bytes),
        ("device_bytes", device.driver.info().total_bytes),
        ("granule_remaps", stats.granule_remaps),
        ("retries", stats.retries),
        ("driver_calls", device.driver_calls()),
        ("remapped_granules", remaps.remapped_granules),
        ("aliases", remaps.aliases),
        ("alias_bytes", remaps.alias_bytes()),
        ("pinned_bytes", remaps.pinned_bytes),
        ("moves", stats.moves),
        ("moved_bytes", stats.moved_bytes),
        ("beside_live_bytes", remaps.beside_live_bytes),
        ("on_host_bytes", stats.on_host_bytes),
        ("device_looks", stats.device_looks),
        ("host_floor_bytes", device.allocator.host_floor_bytes()),
    ] {
        let _ = write!(text, "\"{name}\":{number},");
    }
    for (name, choices) in
        [("with_room", &stats.with_room), ("under_pressure", &stats.under_pressure)]
    {
        let Choices { growths, remaps, waits, .. } = choices;
        let _ = write!(
            text,
            "\"{name}\":{{\"growths\":{growths},\"remaps\":{remaps},\"waits\":{waits}}},"
        );
    }
    text.pop();
    for (name, class) in ["small", "large"].into_iter().zip(&stats.classes) {
        let _ = write!(text, ",\"{name}\":{{");
        gauges(&mut text, class);
        text.pop();
        text.push('}');
    }
    text.push_str(",\"tags\":{");
    for (at, tag) in device.allocator.tag_stats().into_iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let (bytes, peak_bytes) = (tag.bytes, tag.peak_bytes);
        // `drystone_tag` takes no control characters: what else JSON wants escaped is here.
        let name = tag.name.replace('\\', "\\\\").replace('"', "\\\"");
        let _ = write!(text, "{comma}\"{name}\":{{\"current\":{bytes},\"peak\":{peak_bytes}}}");
    }
    text.push_str("},");
    neighbours(&mut text, device);
    text.push_str(",\"registered\":{");
    for (at, kept) in registered::of_device(device.ordinal).into_iter().enumerate() {
        let Kept { call, ranges, bytes } = kept;
        let comma = if at > 0 { "," } else { "" };
        let _ = write!(text, "{comma}\"{call}\":{{\"ranges\":{ranges},\"bytes\":{bytes}}}");
    }
    text.push_str("},\"shared\":{");
    for (at, of) in device.allocator.shared().into_iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let (call, handles, bytes) = (of.by.call(), of.handles, of.bytes);
        let _ = write!(text, "{comma}\"{call}\":{{\"handles\":{handles},\"bytes\":{bytes}}}");
    }
    text.push_str("}}");
    text
}

/// Other processes on the device, and what went from and to them.
fn neighbours(text: &mut String, device: &Device) {
    let Exchanges { given_bytes, given, taken_bytes, taken, idle_bytes, last, .. } =
        device.exchanges();
    let _ = write!(
        text,
        "\"neighbours\":{{\"given_bytes\":{given_bytes},\"given\":{given},\
         \"taken_bytes\":{taken_bytes},\"taken\":{taken},\"idle_bytes\":{idle_bytes},\
         \"others\":["
    );
    // Names have letters and marks, of which these would end a text.
    let plain = |name: &str| name.replace(['\\', '"'], "?");
    for (at, one) in device.allocator.neighbours().into_iter().enumerate() {
        let Neighbour { process, name, held_bytes, unused_bytes } = one;
        let (comma, name) = (if at > 0 { "," } else { "" }, plain(&name));
        let _ = write!(
            text,
            "{comma}{{\"process\":{process},\"name\":\"{name}\",\
             \"held_bytes\":{held_bytes},\"unused_bytes\":{unused_bytes}}}"
        );
    }
    text.push_str("],\"last\":[");
    for (at, one) in last.into_iter().enumerate() {
        let Exchange { process, name, is_taken, bytes, took } = one;
        let (comma, name) = (if at > 0 { "," } else { "" }, plain(&name));
        let _ = write!(
            text,
            "{comma}{{\"process\":{process},\"name\":\"{name}\",\"is_taken\":{is_taken},\
             \"bytes\":{bytes},\"microseconds\":{}}}",
            took.as_micros() as u64
        );
    }
    text.push_str("]}");
}

/// Each with a comma behind it.
fn gauges(text: &mut String, class: &SizeClassStats) {
    for (name, gauge) in [
        ("requested_bytes", class.requested_bytes),
        ("allocated_bytes", class.allocated_bytes),
        ("active_bytes", class.active_bytes),
        ("reserved_bytes", class.reserved_bytes),
        ("allocations", class.allocations),
        ("active_blocks", class.active_blocks),
        ("segments", class.segments),
    ] {
        let Gauge { current, peak, total, .. } = gauge;
        let _ =
            write!(text, "\"{name}\":{{\"current\":{current},\"peak\":{peak},\"total\":{total}}},");
    }
}

/// Writes what every device in use holds to a file, in the format of
/// `torch.cuda.memory._dump_snapshot`, to open at pytorch.org/memory_viz or with
/// `drystone inspect`. A file that is there is replaced once all is written, and else stays.
///
/// Statuses: INVALID_VALUE (`path` is null), FILE_ERROR, EXITING, FORKED. Any thread.
///
/// # Safety
/// `path` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_snapshot(path: *const c_char) -> Status {
    answer(|| {
        not_null(path, "path")?;
        process::check()?;
        // SAFETY: not null, and a C string by the caller's word.
        let path = unsafe { CStr::from_ptr(path) };
        snapshot::write(Path::new(OsStr::from_bytes(path.to_bytes()))).map_err(|error| {
            let message = format!("{}: {error}", path.to_string_lossy());
            Failure::new(Status::FileError, message)
        })
    })
}
