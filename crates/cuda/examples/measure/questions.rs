//! What is asked of a device beside the cost of its calls: whether unmapping holds up kernels, how
//! much can be mapped, and whether fresh memory is zeroed.

use std::time::Duration;

use drystone_driver::{Driver, MemoryPoolConfig};

use crate::Result;
use crate::bench::{Bench, elapsed};

const MIB: u64 = 1 << 20;
/// Kernels that read memory while granules are unmapped: together some tens of milliseconds.
const READS: usize = 400;
const READ_BYTES: u64 = 64 * MIB;
/// Memory that is looked at.
const FRESH_BYTES: u64 = 64 * MIB;
const PATTERN: u32 = 0xdead_beef;

pub(crate) fn print(bench: &Bench, most_mappings: u64, is_json: bool) -> Result {
    let tell = |question: &str, answer: String| {
        if is_json {
            println!("{}", serde_json::json!({"question": question, "answer": answer}));
        } else {
            println!("| {question} | {answer} |");
        }
    };
    if !is_json {
        println!("| question | answer |");
        println!("| --- | --- |");
    }
    if bench.info.has_virtual_memory {
        tell("does `cuMemUnmap` hold up kernels?", unmaps_beside_kernels(bench)?);
        tell("how many mappings can there be?", mappings(bench, most_mappings)?);
        tell("is memory from `cuMemCreate` zeroed?", created_is_zeroed(bench)?);
    }
    tell("is memory from `cuMemAlloc` zeroed?", plain_is_zeroed(bench)?);
    if bench.info.has_async_malloc {
        tell("is memory new to a pool zeroed?", pooled_is_zeroed(bench)?);
    }
    Ok(())
}

/// How long the same kernels take alone, and while the host maps and unmaps other memory.
fn unmaps_beside_kernels(bench: &Bench) -> Result<String> {
    let alone = reads(bench, false)?.0;
    let (beside, unmaps) = reads(bench, true)?;
    let per_unmap = beside.saturating_sub(alone).as_secs_f64() * 1e6 / f64::from(unmaps.max(1));
    Ok(format!(
        "{READS} kernels over {} MiB each take {:.2} ms alone and {:.2} ms beside {unmaps} rounds \
         of map, set access and unmap: {per_unmap:.1} us for each",
        READ_BYTES / MIB,
        alone.as_secs_f64() * 1e3,
        beside.as_secs_f64() * 1e3,
    ))
}

/// The time of the kernels, and how often memory was unmapped meanwhile.
fn reads(bench: &Bench, is_unmapping: bool) -> Result<(Duration, u32)> {
    let (device, stream, each) = (&bench.device, bench.stream, bench.info.granularity_bytes);
    let read = device.malloc(READ_BYTES)?;
    bench.gpu.fill(read, READ_BYTES / 4, PATTERN, stream)?;
    let (address, handle) = (device.reserve(each, 0)?, device.create(each)?);
    let done = device.create_event()?;
    bench.gpu.synchronize()?;
    let (taken, unmaps) = elapsed(|| -> Result<u32> {
        for _ in 0..READS {
            bench.kernels.verify(read, READ_BYTES / 4, PATTERN, stream)?;
        }
        device.record(done, stream)?;
        let mut unmaps = 0;
        while is_unmapping && !device.query(done)? {
            device.map(address, each, handle)?;
            device.set_access(address, each)?;
            device.unmap(address, each)?;
            unmaps += 1;
        }
        device.synchronize_event(done)?;
        Ok(unmaps)
    })?;
    device.destroy_event(done)?;
    device.release(handle)?;
    device.unreserve(address, each)?;
    device.free(read)?;
    Ok((taken, unmaps))
}

/// One granule is mapped again and again: addresses run out, or mappings, but not memory.
fn mappings(bench: &Bench, most: u64) -> Result<String> {
    let (device, each) = (&bench.device, bench.info.granularity_bytes);
    let (address, handle) = (device.reserve(most * each, 0)?, device.create(each)?);
    let mut refusal = None;
    let mut mapped = 0;
    let mut accessible = 0;
    while mapped < most && refusal.is_none() {
        let at = address + mapped * each;
        refusal = device.map(at, each, handle).err();
        if refusal.is_none() {
            mapped += 1;
            refusal = device.set_access(at, each).err();
            accessible += u64::from(refusal.is_none());
        }
    }
    if mapped > 0 {
        device.unmap(address, mapped * each)?;
    }
    device.release(handle)?;
    device.unreserve(address, most * each)?;
    Ok(match refusal {
        None => format!("at least {most}; no more were tried"),
        Some(error) => format!("{accessible} with access; then: {error}"),
    })
}

/// Whether memory is all zeroes, or still has the pattern that was in what was given back before.
fn look(bench: &Bench, address: u64) -> Result<String> {
    let bytes = bench.gpu.read(address, FRESH_BYTES as usize)?;
    let words = bytes.as_chunks::<4>().0;
    let old = words.iter().filter(|word| u32::from_ne_bytes(**word) == PATTERN).count();
    let zero = words.iter().filter(|word| **word == [0; 4]).count();
    Ok(match (zero == words.len(), old) {
        (true, _) => "yes".to_owned(),
        (false, old) => {
            format!(
                "no: of {} words {zero} are 0, {old} are as the last owner left them",
                words.len()
            )
        }
    })
}

fn scribble(bench: &Bench, address: u64) -> Result {
    bench.gpu.fill(address, FRESH_BYTES / 4, PATTERN, bench.stream)?;
    Ok(bench.gpu.synchronize()?)
}

fn created_is_zeroed(bench: &Bench) -> Result<String> {
    let mut answer = String::new();
    for round in 0..2 {
        let mapped = bench.map_granules(FRESH_BYTES / bench.info.granularity_bytes)?;
        bench.device.set_access(mapped.address, mapped.bytes)?;
        match round {
            0 => scribble(bench, mapped.address)?,
            _ => answer = look(bench, mapped.address)?,
        }
        bench.device.unmap(mapped.address, mapped.bytes)?;
        bench.give_back(mapped)?;
    }
    Ok(answer)
}

fn plain_is_zeroed(bench: &Bench) -> Result<String> {
    let address = bench.device.malloc(FRESH_BYTES)?;
    scribble(bench, address)?;
    bench.device.free(address)?;
    let address = bench.device.malloc(FRESH_BYTES)?;
    let answer = look(bench, address)?;
    bench.device.free(address)?;
    Ok(answer)
}

fn pooled_is_zeroed(bench: &Bench) -> Result<String> {
    let (device, stream) = (&bench.device, bench.stream);
    let pool = device.create_memory_pool(&MemoryPoolConfig::default())?;
    let address = device.malloc_async(pool, FRESH_BYTES, stream)?;
    scribble(bench, address)?;
    device.free_async(address, stream)?;
    device.synchronize_stream(stream)?;
    device.trim_memory_pool(pool, 0)?;
    let address = device.malloc_async(pool, FRESH_BYTES, stream)?;
    device.synchronize_stream(stream)?;
    let answer = look(bench, address)?;
    device.free_async(address, stream)?;
    device.synchronize_stream(stream)?;
    device.destroy_memory_pool(pool)?;
    Ok(answer)
}
