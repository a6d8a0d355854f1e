//! Values in memory that a stream writes or waits for. A wait is over at once: what would write
//! the value is not simulated. But a batch that writes a value, and waits for one in host memory
//! that has not come, holds its stream: it writes once the stream has drained, if that is soon, and
//! what other threads queue then waits for the value. One that only writes there does so once the
//! stream has drained, too.

use super::host;
use super::stream::context_of;
use crate::abi::{In, Raw};
use crate::entry::Call;
use crate::queue::{Queue, queue};
use crate::status::{INVALID_CONTEXT, INVALID_VALUE, Outcome};
use crate::tables::Node;
use crate::{context, effect, process};
use drystone_sim::Gate;

fn write(call: &Call, stream: Raw, address: u64, value: u64, bytes: usize) -> Outcome {
    let queue = queue(call, stream)?;
    INVALID_VALUE.when(!address.is_multiple_of(bytes as u64))?;
    effect::check(address, bytes as u64)?;
    for (index, half) in [value as u32, (value >> 32) as u32].into_iter().enumerate() {
        if index * 4 < bytes {
            let to = address + index as u64 * 4;
            if queue.push(0, || Node::Set { to, value: half, width: 4, count: 1 })? {
                effect::fill(to, half, 4, 1);
            }
        }
    }
    Ok(())
}

fn wait(call: &Call, stream: Raw, address: u64, bytes: usize) -> Outcome {
    let queue = queue(call, stream)?;
    INVALID_VALUE.when(!address.is_multiple_of(bytes as u64))?;
    effect::check(address, bytes as u64)?;
    queue.push(0, || Node::Empty).map(drop)
}

/// Holds a stream until a gate opens; with the default one those that wait for it. Whether it had
/// drained by then.
fn hold(call: &Call, stream: Raw, gate: Gate) -> Outcome<bool> {
    let queue = queue(call, stream)?;
    let mut streams = vec![queue.stream];
    if queue.is_legacy() {
        streams.extend(queue.blocking());
    }
    Ok(queue.device.sim.hold_until(streams, gate)?)
}

/// Whether a batch is one write to the host's memory that comes later than anybody waits for it.
/// One that is captured becomes part of the graph.
fn writes_late(queue: &Queue, count: u32, operations: &In<[u64; 6]>) -> Outcome<bool> {
    let [kind, address, ..] = operations.at(0).get()?;
    let is_to_host = process::device_of_address(address).is_none();
    let is_one = count == 1 && kind as u32 == 2 && is_to_host;
    Ok(is_one && !queue.device.sim.drains(queue.stream).unwrap_or(true))
}

api! {
    fn cuStreamWriteValue32_v2 | cuStreamWriteValue32_v2_ptsz = cuStreamWriteValue32 (
        stream: Raw, address: u64, value: u32, flags: u32
    ) |call| { write(call, stream, address, value.into(), 4) }

    fn cuStreamWriteValue64_v2 | cuStreamWriteValue64_v2_ptsz = cuStreamWriteValue64 (
        stream: Raw, address: u64, value: u64, flags: u32
    ) |call| { write(call, stream, address, value, 8) }

    fn cuStreamWaitValue32_v2 | cuStreamWaitValue32_v2_ptsz = cuStreamWaitValue32 (
        stream: Raw, address: u64, value: u32, flags: u32
    ) |call| { wait(call, stream, address, 4) }

    fn cuStreamWaitValue64_v2 | cuStreamWaitValue64_v2_ptsz = cuStreamWaitValue64 (
        stream: Raw, address: u64, value: u64, flags: u32
    ) |call| { wait(call, stream, address, 8) }

    fn cuStreamBatchMemOp_v2 | cuStreamBatchMemOp_v2_ptsz = cuStreamBatchMemOp (
        stream: Raw, count: u32, operations: In<[u64; 6]>, flags: u32
    ) |call| {
        let own = queue(call, stream)?;
        // Whether one of another context than the current one will do, CUDA does not say.
        INVALID_CONTEXT.when(context_of(&own)? != context::current_raw())?;
        // With no queue of the device left, it stands behind those that wait.
        let stands = own.device.sim.is_behind_held();
        let last = (count > 1).then(|| operations.at(count as usize - 1).get()).transpose()?;
        if let Some([1, address, value, ..]) = last
            && let Some(gate) = host::gate(address, value as u32)
            && !hold(call, stream, gate)?
        {
            return Ok(());
        }
        if stands || writes_late(&own, count, &operations)? {
            return Ok(());
        }
        for index in 0..count as usize {
            let [kind, address, value, ..] = operations.at(index).get()?;
            // CU_STREAM_MEM_OP_WAIT_VALUE_32, WRITE_VALUE_32, FLUSH, WAIT_ and WRITE_VALUE_64
            match kind as u32 {
                1 => wait(call, stream, address, 4)?,
                2 => write(call, stream, address, value & 0xffff_ffff, 4)?,
                3 | 6 => {}
                4 => wait(call, stream, address, 8)?,
                5 => write(call, stream, address, value, 8)?,
                _ => return Err(INVALID_VALUE),
            }
        }
        Ok(())
    }
}
