//! The table of what each call costs.

use std::time::Duration;

use drystone_driver::{Driver, MemoryPoolConfig};

use crate::Result;
use crate::bench::{Bench, Step, Times};

const MIB: u64 = 1 << 20;

/// Granules that one call is made over.
const GRANULES: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

fn us(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1e6)
}

/// A call, and what of it.
type Row<'a> = dyn Fn(&Bench, &str, &str, Step<'_>) -> Result + 'a;

fn timed(bench: &Bench, step: Step<'_>) -> Result<[String; 4]> {
    let [idle, busy] = [false, true].map(|is_busy| bench.repeat(is_busy, step));
    let (Times { median, worst }, busy) = (idle?, busy?);
    Ok([median, worst, busy.median, busy.worst].map(us))
}

/// A table for documents.
pub(crate) fn print(bench: &Bench) -> Result {
    println!("| call | idle | worst | beside a kernel | worst |");
    println!("| --- | --- | --- | --- | --- |");
    all(bench, &|bench, call, of, step| {
        let [median, worst, busy_median, busy_worst] = timed(bench, step)?;
        let comma = if of.is_empty() || of.starts_with("over ") { " " } else { ", " };
        let name = format!("`{call}`{comma}{of}");
        println!("| {} | {median} | {worst} | {busy_median} | {busy_worst} |", name.trim_end());
        Ok(())
    })
}

/// Rows for programs, in microseconds.
pub(crate) fn tell(bench: &Bench) -> Result {
    all(bench, &|bench, call, of, step| {
        let [median, worst, busy_median, busy_worst] = timed(bench, step)?;
        let of_call = format!(r#""call": "{call}", "of": "{of}""#);
        let idle = format!(r#""us": {median}, "worst us": {worst}"#);
        let busy =
            format!(r#""beside a kernel us": {busy_median}, "worst there us": {busy_worst}"#);
        println!("{{{of_call}, {idle}, {busy}}}");
        Ok(())
    })
}

fn all(bench: &Bench, row: &Row<'_>) -> Result {
    if bench.info.has_virtual_memory {
        physical(bench, row)?;
        virtual_memory(bench, row)?;
    }
    plain(bench, row)?;
    if bench.info.has_async_malloc {
        pooled(bench, row)?;
    }
    events(bench, row)
}

fn physical(bench: &Bench, row: &Row<'_>) -> Result {
    for granules in [1, 4, 16, 64] {
        let bytes = granules * bench.info.granularity_bytes;
        row(bench, "cuMemCreate", &format!("{} MiB", bytes / MIB), &|bench| {
            let (taken, handle) = bench.time(|| bench.device.create(bytes))?;
            bench.device.release(handle)?;
            Ok(taken)
        })?;
        row(bench, "cuMemRelease", &format!("{} MiB", bytes / MIB), &|bench| {
            let handle = bench.device.create(bytes)?;
            Ok(bench.time(|| bench.device.release(handle))?.0)
        })?;
    }
    Ok(())
}

fn virtual_memory(bench: &Bench, row: &Row<'_>) -> Result {
    let each = bench.info.granularity_bytes;
    row(bench, "cuMemAddressReserve", "64 GiB", &|bench| {
        let (taken, address) = bench.time(|| bench.device.reserve(65536 * MIB, 0))?;
        bench.device.unreserve(address, 65536 * MIB)?;
        Ok(taken)
    })?;
    row(bench, "cuMemMap", "one granule", &|bench| {
        let (address, handle) = (bench.device.reserve(each, 0)?, bench.device.create(each)?);
        let (taken, ()) = bench.time(|| bench.device.map(address, each, handle))?;
        bench.device.unmap(address, each)?;
        bench.device.release(handle)?;
        bench.device.unreserve(address, each)?;
        Ok(taken)
    })?;
    for granules in GRANULES {
        row(bench, "cuMemSetAccess", &format!("over {granules} granules"), &|bench| {
            let mapped = bench.map_granules(granules)?;
            let set = || bench.device.set_access(mapped.address, mapped.bytes);
            let (taken, ()) = bench.time(set)?;
            bench.device.unmap(mapped.address, mapped.bytes)?;
            bench.give_back(mapped)?;
            Ok(taken)
        })?;
    }
    for granules in GRANULES {
        row(bench, "cuMemUnmap", &format!("over {granules} granules"), &|bench| {
            let mapped = bench.map_granules(granules)?;
            bench.device.set_access(mapped.address, mapped.bytes)?;
            let unmap = || bench.device.unmap(mapped.address, mapped.bytes);
            let (taken, ()) = bench.time(unmap)?;
            bench.give_back(mapped)?;
            Ok(taken)
        })?;
    }
    Ok(())
}

fn plain(bench: &Bench, row: &Row<'_>) -> Result {
    for mib in [2, 20, 128] {
        row(bench, "cuMemAlloc", &format!("{mib} MiB"), &|bench| {
            let (taken, address) = bench.time(|| bench.device.malloc(mib * MIB))?;
            bench.device.free(address)?;
            Ok(taken)
        })?;
        row(bench, "cuMemFree", &format!("{mib} MiB"), &|bench| {
            let address = bench.device.malloc(mib * MIB)?;
            Ok(bench.time(|| bench.device.free(address))?.0)
        })?;
    }
    Ok(())
}

/// From a pool that keeps its memory, and from one that has none.
fn pooled(bench: &Bench, row: &Row<'_>) -> Result {
    let (device, stream) = (&bench.device, bench.stream);
    let config = MemoryPoolConfig::default().with_release_threshold_bytes(u64::MAX);
    let pool = device.create_memory_pool(&config)?;
    for mib in [2, 128] {
        let bytes = mib * MIB;
        row(bench, "cuMemAllocFromPoolAsync", &format!("{mib} MiB, kept"), &|bench| {
            let (taken, address) = bench.time(|| device.malloc_async(pool, bytes, stream))?;
            device.free_async(address, stream)?;
            Ok(taken)
        })?;
        row(bench, "cuMemFreeAsync", &format!("{mib} MiB"), &|bench| {
            let address = device.malloc_async(pool, bytes, stream)?;
            Ok(bench.time(|| device.free_async(address, stream))?.0)
        })?;
        row(bench, "cuMemAllocFromPoolAsync", &format!("{mib} MiB, new"), &|bench| {
            device.synchronize_stream(stream)?;
            device.trim_memory_pool(pool, 0)?;
            let (taken, address) = bench.time(|| device.malloc_async(pool, bytes, stream))?;
            device.free_async(address, stream)?;
            Ok(taken)
        })?;
        row(bench, "cuMemPoolTrimTo", &format!("{mib} MiB"), &|bench| {
            let address = device.malloc_async(pool, bytes, stream)?;
            device.free_async(address, stream)?;
            device.synchronize_stream(stream)?;
            Ok(bench.time(|| device.trim_memory_pool(pool, 0))?.0)
        })?;
    }
    bench.gpu.synchronize()?;
    Ok(device.destroy_memory_pool(pool)?)
}

fn events(bench: &Bench, row: &Row<'_>) -> Result {
    let (device, stream) = (&bench.device, bench.stream);
    let event = device.create_event()?;
    row(bench, "cuEventCreate", "", &|bench| {
        let (taken, event) = bench.time(|| device.create_event())?;
        device.destroy_event(event)?;
        Ok(taken)
    })?;
    row(bench, "cuEventRecord", "", &|bench| Ok(bench.time(|| device.record(event, stream))?.0))?;
    row(bench, "cuEventQuery", "complete", &|bench| {
        device.record(event, stream)?;
        device.synchronize_event(event)?;
        Ok(bench.time(|| device.query(event))?.0)
    })?;
    row(bench, "cuEventQuery", "not yet", &|bench| {
        bench.kernels.spin(5_000_000, stream)?;
        device.record(event, stream)?;
        let (taken, _) = bench.time(|| device.query(event))?;
        device.synchronize_event(event)?;
        Ok(taken)
    })?;
    row(bench, "cuStreamWaitEvent", "", &|bench| Ok(bench.time(|| device.wait(stream, event))?.0))?;
    row(bench, "cuStreamGetId", "with what is asked before", &|bench| {
        Ok(bench.time(|| device.stream_uid(stream))?.0)
    })?;
    row(bench, "cuStreamIsCapturing", "", &|bench| {
        Ok(bench.time(|| device.capture_status(stream))?.0)
    })?;
    bench.gpu.synchronize()?;
    Ok(device.destroy_event(event)?)
}
