//! Copies: by address alone, as one address space allows.

use crate::abi::{Copy2d, Copy3d, In, Raw, Side2d, Side3d};
use crate::capture;
use crate::context::current;
use crate::effect::{carry_out, check, check_on};
use crate::entry::Call;
use crate::queue::{Queue, queue};
use crate::status::{INVALID_VALUE, Outcome};
use crate::tables::Node;

#[derive(Clone, Copy)]
enum Reach {
    /// The stream's device, to which the memory must be open.
    Own,
    /// Each device its own part, as between peers.
    Both,
}

/// Queues a copy. A blocking one waits for its stream, as host memory that is pageable needs.
fn copy(queue: &Queue, to: u64, from: u64, bytes: u64, is_blocking: bool, reach: Reach) -> Outcome {
    for address in [to, from] {
        match reach {
            Reach::Own => check_on(&queue.device, address, bytes, true)?,
            Reach::Both => check(address, bytes)?,
        }
    }
    if is_blocking && capture::any(&queue.device) {
        queue.device.sim.finish_stream(queue.stream)?;
    }
    if queue.push(0, || Node::Copy { to, from, bytes })? && bytes > 0 {
        carry_out(to, from, bytes);
        queue.device.sim.note_copy(to, from, bytes);
    }
    if is_blocking {
        queue.device.sim.finish_stream(queue.stream)?;
    }
    Ok(())
}

fn blocking(call: &Call, to: u64, from: u64, bytes: usize, reach: Reach) -> Outcome {
    call.count_bytes(bytes as u64);
    copy(&queue(call, Raw(0))?, to, from, bytes as u64, true, reach)
}

fn queued(call: &Call, to: u64, from: u64, bytes: usize, stream: Raw, reach: Reach) -> Outcome {
    call.count_bytes(bytes as u64);
    copy(&queue(call, stream)?, to, from, bytes as u64, false, reach)
}

/// `CU_MEMORYTYPE_HOST`; the others go by the device address.
const HOST: i32 = 1;
const ARRAY: i32 = 3;

fn side(kind: i32, host: u64, device: u64) -> Outcome<u64> {
    match kind {
        HOST => Ok(host),
        ARRAY => Err(INVALID_VALUE),
        _ => Ok(device),
    }
}

/// Copies `height` times `depth` rows of `width` bytes.
struct Rows {
    to: u64,
    from: u64,
    to_pitch: u64,
    from_pitch: u64,
    to_plane: u64,
    from_plane: u64,
    width: u64,
    height: u64,
    depth: u64,
}

impl Rows {
    fn of_2d(copy: &Copy2d) -> Outcome<Self> {
        let (from, to) = (&copy.from, &copy.to);
        let start = |one: &Side2d| -> Outcome<u64> {
            let offset = (one.y as u64).wrapping_mul(one.pitch as u64).wrapping_add(one.x as u64);
            Ok(side(one.kind, one.host, one.device)?.wrapping_add(offset))
        };
        let pitch = |pitch: usize| if pitch == 0 { copy.width as u64 } else { pitch as u64 };
        Ok(Self {
            to: start(to)?,
            from: start(from)?,
            to_pitch: pitch(to.pitch),
            from_pitch: pitch(from.pitch),
            to_plane: 0,
            from_plane: 0,
            width: copy.width as u64,
            height: copy.height as u64,
            depth: 1,
        })
    }

    fn of_3d(copy: &Copy3d) -> Outcome<Self> {
        let plane = |one: &Side3d| (one.pitch as u64).wrapping_mul(one.height as u64);
        let start = |one: &Side3d| -> Outcome<u64> {
            let rows = (one.y as u64).wrapping_mul(one.pitch as u64).wrapping_add(one.x as u64);
            let offset = (one.z as u64).wrapping_mul(plane(one)).wrapping_add(rows);
            Ok(side(one.kind, one.host, one.device)?.wrapping_add(offset))
        };
        Ok(Self {
            to: start(&copy.to)?,
            from: start(&copy.from)?,
            to_pitch: copy.to.pitch as u64,
            from_pitch: copy.from.pitch as u64,
            to_plane: plane(&copy.to),
            from_plane: plane(&copy.from),
            width: copy.width as u64,
            height: copy.height as u64,
            depth: copy.depth as u64,
        })
    }

    fn copy(&self, call: &Call, stream: Raw, is_blocking: bool, reach: Reach) -> Outcome {
        let queue = queue(call, stream)?;
        let is_cut = |pitch: u64| pitch < self.width && self.height > 1;
        INVALID_VALUE.when(is_cut(self.to_pitch) || is_cut(self.from_pitch))?;
        call.count_bytes(self.width.saturating_mul(self.height).saturating_mul(self.depth));
        if self.width == 0 {
            return Ok(());
        }
        for z in 0..self.depth {
            for y in 0..self.height {
                let to = self.to + z * self.to_plane + y * self.to_pitch;
                let from = self.from + z * self.from_plane + y * self.from_pitch;
                copy(&queue, to, from, self.width, false, reach)?;
            }
        }
        if is_blocking { Ok(queue.device.sim.finish_stream(queue.stream)?) } else { Ok(()) }
    }
}

api! {
    fn cuMemcpy
        | cuMemcpy_ptds | cuMemcpyHtoD_v2_ptds | cuMemcpyDtoH_v2_ptds | cuMemcpyDtoD_v2_ptds
        = cuMemcpyHtoD_v2 = cuMemcpyDtoH_v2 = cuMemcpyDtoD_v2
        = cuMemcpyHtoD = cuMemcpyDtoH = cuMemcpyDtoD
    (to: u64, from: u64, bytes: usize) |call| { blocking(call, to, from, bytes, Reach::Own) }

    fn cuMemcpyPeer | cuMemcpyPeer_ptds (
        to: u64, to_context: Raw, from: u64, from_context: Raw, bytes: usize
    ) |call| { blocking(call, to, from, bytes, Reach::Both) }

    fn cuMemcpyAsync
        | cuMemcpyAsync_ptsz
        | cuMemcpyHtoDAsync_v2_ptsz | cuMemcpyDtoHAsync_v2_ptsz | cuMemcpyDtoDAsync_v2_ptsz
        = cuMemcpyHtoDAsync_v2 = cuMemcpyDtoHAsync_v2 = cuMemcpyDtoDAsync_v2
        = cuMemcpyHtoDAsync = cuMemcpyDtoHAsync = cuMemcpyDtoDAsync
    (to: u64, from: u64, bytes: usize, stream: Raw) |call| {
        queued(call, to, from, bytes, stream, Reach::Own)
    }

    fn cuMemcpyPeerAsync | cuMemcpyPeerAsync_ptsz (
        to: u64, to_context: Raw, from: u64, from_context: Raw, bytes: usize, stream: Raw
    ) |call| { queued(call, to, from, bytes, stream, Reach::Both) }

    fn cuMemcpy2D_v2
        | cuMemcpy2D_v2_ptds | cuMemcpy2DUnaligned_v2_ptds
        = cuMemcpy2D = cuMemcpy2DUnaligned_v2 = cuMemcpy2DUnaligned
    (copy: In<Copy2d>) |call| { Rows::of_2d(&copy.get()?)?.copy(call, Raw(0), true, Reach::Own) }

    fn cuMemcpy2DAsync_v2 | cuMemcpy2DAsync_v2_ptsz = cuMemcpy2DAsync (
        copy: In<Copy2d>, stream: Raw
    ) |call| { Rows::of_2d(&copy.get()?)?.copy(call, stream, false, Reach::Own) }

    fn cuMemcpy3D_v2 | cuMemcpy3D_v2_ptds = cuMemcpy3D (copy: In<Copy3d>) |call| {
        Rows::of_3d(&copy.get()?)?.copy(call, Raw(0), true, Reach::Own)
    }

    fn cuMemcpy3DAsync_v2 | cuMemcpy3DAsync_v2_ptsz = cuMemcpy3DAsync (
        copy: In<Copy3d>, stream: Raw
    ) |call| { Rows::of_3d(&copy.get()?)?.copy(call, stream, false, Reach::Own) }

    fn cuMemcpy3DPeer | cuMemcpy3DPeer_ptds (copy: In<Copy3d>) |call| {
        Rows::of_3d(&copy.get()?)?.copy(call, Raw(0), true, Reach::Both)
    }

    fn cuMemcpy3DPeerAsync | cuMemcpy3DPeerAsync_ptsz (copy: In<Copy3d>, stream: Raw) |call| {
        queue(call, stream)?;
        Rows::of_3d(&copy.get()?)?.copy(call, stream, false, Reach::Both)
    }

    fn cuMemcpyBatchAsync_v2 | cuMemcpyBatchAsync_v2_ptsz (
        to: In<u64>, from: In<u64>, sizes: In<usize>, count: usize, attributes: Raw,
        indexes: Raw, attribute_count: usize, stream: Raw
    ) |call| {
        let (to, from, sizes) = (to.all(count)?, from.all(count)?, sizes.all(count)?);
        for index in 0..count {
            queued(call, to[index], from[index], sizes[index], stream, Reach::Own)?;
        }
        current().map(drop)
    }
}
