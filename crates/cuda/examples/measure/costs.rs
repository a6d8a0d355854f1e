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

fn row(bench: &Bench, name: &str, step: Step<'_>) -> Result {
    let [idle, busy] = [false, true].map(|is_busy| bench.repeat(is_busy, step));
    let (Times { median, worst }, busy) = (idle?, busy?);
    let [median, worst, busy_median, busy_worst] = [median, worst, busy.median, busy.worst].map(us);
    println!("| {name} | {median} | {worst} | {busy_median} | {busy_worst} |");
    Ok(())
}

pub(crate) fn print(bench: &Bench) -> Result {
    println!("| call | idle | worst | beside a kernel | worst |");
    println!("| --- | --- | --- | --- | --- |");
    if bench.info.has_virtual_memory {
        physical(bench)?;
        virtual_memory(bench)?;
    }
    plain(bench)?;
    if bench.info.has_async_malloc {
        pooled(bench)?;
    }
    events(bench)
}

fn physical(bench: &Bench) -> Result {
    for granules in [1, 4, 16, 64] {
        let bytes = granules * bench.info.granularity_bytes;
        row(bench, &format!("`cuMemCreate`, {} MiB", bytes / MIB), &|bench| {
            let (taken, handle) = bench.time(|| bench.device.create(bytes))?;
            bench.device.release(handle)?;
            Ok(taken)
        })?;
        row(bench, &format!("`cuMemRelease`, {} MiB", bytes / MIB), &|bench| {
            let handle = bench.device.create(bytes)?;
            Ok(bench.time(|| bench.device.release(handle))?.0)
        })?;
    }
    Ok(())
}

fn virtual_memory(bench: &Bench) -> Result {
    let each = bench.info.granularity_bytes;
    row(bench, "`cuMemAddressReserve`, 64 GiB", &|bench| {
        let (taken, address) = bench.time(|| bench.device.reserve(65536 * MIB, 0))?;
        bench.device.unreserve(address, 65536 * MIB)?;
        Ok(taken)
    })?;
    row(bench, "`cuMemMap`, one granule", &|bench| {
        let (address, handle) = (bench.device.reserve(each, 0)?, bench.device.create(each)?);
        let (taken, ()) = bench.time(|| bench.device.map(address, each, handle))?;
        bench.device.unmap(address, each)?;
        bench.device.release(handle)?;
        bench.device.unreserve(address, each)?;
        Ok(taken)
    })?;
    for granules in GRANULES {
        row(bench, &format!("`cuMemSetAccess` over {granules} granules"), &|bench| {
            let mapped = bench.map_granules(granules)?;
            let set = || bench.device.set_access(mapped.address, mapped.bytes);
            let (taken, ()) = bench.time(set)?;
            bench.device.unmap(mapped.address, mapped.bytes)?;
            bench.give_back(mapped)?;
            Ok(taken)
        })?;
    }
    for granules in GRANULES {
        row(bench, &format!("`cuMemUnmap` over {granules} granules"), &|bench| {
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

fn plain(bench: &Bench) -> Result {
    for mib in [2, 20, 128] {
        row(bench, &format!("`cuMemAlloc`, {mib} MiB"), &|bench| {
            let (taken, address) = bench.time(|| bench.device.malloc(mib * MIB))?;
            bench.device.free(address)?;
            Ok(taken)
        })?;
        row(bench, &format!("`cuMemFree`, {mib} MiB"), &|bench| {
            let address = bench.device.malloc(mib * MIB)?;
            Ok(bench.time(|| bench.device.free(address))?.0)
        })?;
    }
    Ok(())
}

/// From a pool that keeps its memory, and from one that has none.
fn pooled(bench: &Bench) -> Result {
    let (device, stream) = (&bench.device, bench.stream);
    let config = MemoryPoolConfig::default().with_release_threshold_bytes(u64::MAX);
    let pool = device.create_memory_pool(&config)?;
    for mib in [2, 128] {
        let bytes = mib * MIB;
        row(bench, &format!("`cuMemAllocFromPoolAsync`, {mib} MiB, kept"), &|bench| {
            let (taken, address) = bench.time(|| device.malloc_async(pool, bytes, stream))?;
            device.free_async(address, stream)?;
            Ok(taken)
        })?;
        row(bench, &format!("`cuMemFreeAsync`, {mib} MiB"), &|bench| {
            let address = device.malloc_async(pool, bytes, stream)?;
            Ok(bench.time(|| device.free_async(address, stream))?.0)
        })?;
        row(bench, &format!("`cuMemAllocFromPoolAsync`, {mib} MiB, new"), &|bench| {
            device.synchronize_stream(stream)?;
            device.trim_memory_pool(pool, 0)?;
            let (taken, address) = bench.time(|| device.malloc_async(pool, bytes, stream))?;
            device.free_async(address, stream)?;
            Ok(taken)
        })?;
        row(bench, &format!("`cuMemPoolTrimTo`, {mib} MiB"), &|bench| {
            let address = device.malloc_async(pool, bytes, stream)?;
            device.free_async(address, stream)?;
            device.synchronize_stream(stream)?;
            Ok(bench.time(|| device.trim_memory_pool(pool, 0))?.0)
        })?;
    }
    bench.gpu.synchronize()?;
    Ok(device.destroy_memory_pool(pool)?)
}

fn events(bench: &Bench) -> Result {
    let (device, stream) = (&bench.device, bench.stream);
    let event = device.create_event()?;
    row(bench, "`cuEventCreate`", &|bench| {
        let (taken, event) = bench.time(|| device.create_event())?;
        device.destroy_event(event)?;
        Ok(taken)
    })?;
    row(bench, "`cuEventRecord`", &|bench| Ok(bench.time(|| device.record(event, stream))?.0))?;
    row(bench, "`cuEventQuery`, complete", &|bench| {
        device.record(event, stream)?;
        device.synchronize_event(event)?;
        Ok(bench.time(|| device.query(event))?.0)
    })?;
    row(bench, "`cuEventQuery`, not yet", &|bench| {
        bench.kernels.spin(5_000_000, stream)?;
        device.record(event, stream)?;
        let (taken, _) = bench.time(|| device.query(event))?;
        device.synchronize_event(event)?;
        Ok(taken)
    })?;
    row(bench, "`cuStreamWaitEvent`", &|bench| Ok(bench.time(|| device.wait(stream, event))?.0))?;
    row(bench, "`cuStreamGetId`, with what is asked before", &|bench| {
        Ok(bench.time(|| device.stream_uid(stream))?.0)
    })?;
    row(bench, "`cuStreamIsCapturing`", &|bench| {
        Ok(bench.time(|| device.capture_status(stream))?.0)
    })?;
    bench.gpu.synchronize()?;
    Ok(device.destroy_event(event)?)
}
