//! What the devices hold, as a PyTorch snapshot.
//!
//! A mapped segment is shown as its backed parts, each a segment, as PyTorch shows expandable ones.
//! Streams and pools have the names that the program gave them. A block that has a tag has a stack
//! of one frame, `tag` and the tag's name: viewers show it, and tell by it who holds what.

use std::fs::{self, File};
use std::path::Path;
use std::{io, process};

use drystone::{BlockState, BlockView, SegmentKind, SegmentView, SizeClass, Tag};
use drystone_trace::snapshot::{self, Frame, PoolId, Segment, Snapshot, StackId, Stacks};
use parking_lot::Mutex;

use crate::device::Device;
use crate::registry;

/// One thread writes at a time: what is written first has a name for each process.
static WRITES: Mutex<()> = Mutex::new(());

/// Writes the snapshot of all devices in use. What was there is replaced once all is written, a
/// link too; only what is no file, such as a pipe, or has no folder for another beside it, such as
/// an open file by its descriptor, is written to as it is.
pub(crate) fn write(path: &Path) -> io::Result<()> {
    let _writes = WRITES.lock();
    let is_replaced = fs::metadata(path).map_or(true, |there| there.is_file());
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}.part", process::id()));
    if is_replaced {
        // What an earlier process of this number left, or somebody has put there.
        let _ = fs::remove_file(&part);
    }
    let beside = is_replaced.then(|| File::create_new(&part));
    let file = match beside {
        Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => None,
        beside => beside.transpose()?,
    };
    let Some(file) = file else {
        return of_devices().write_pickle(File::create(path)?);
    };
    let written = of_devices().write_pickle(file).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

pub(crate) fn of_devices() -> Snapshot {
    let mut found = Snapshot { settings: settings(), ..Snapshot::default() };
    for device in registry::in_use() {
        found.device_traces.resize_with(device.ordinal as usize + 1, Vec::new);
        let mut tags = Tags { device, stacks: &mut found.stacks, known: Vec::new() };
        for segment in device.allocator.snapshot() {
            found.segments.extend(backed_parts(&mut tags, &segment));
        }
    }
    found
}

fn settings() -> serde_json::Value {
    serde_json::json!({ "PYTORCH_CUDA_ALLOC_CONF": "", "backend": "drystone" })
}

/// The backed parts of a segment: where each starts, its bytes, and the blocks that tile it.
pub(crate) fn backed_runs(segment: &SegmentView) -> impl Iterator<Item = (u64, u64, &[BlockView])> {
    let runs = segment.blocks.split(|block| !block.state.is_backed());
    runs.filter_map(|run| {
        let (first, last) = (run.first()?, run.last()?);
        Some((first.address, last.address + last.bytes - first.address, run))
    })
}

/// The tags of a device's blocks, as stacks.
struct Tags<'a> {
    device: &'a Device,
    stacks: &'a mut Stacks,
    /// By name: those that some block has.
    known: Vec<(Tag, StackId)>,
}

impl Tags<'_> {
    fn of(&mut self, block: &BlockView) -> Option<StackId> {
        if block.state != BlockState::Live {
            return None;
        }
        let tag = self.device.allocator.tag_of(block.address)?;
        let known = self.known.iter().find(|(known, _)| known.name() == tag.name());
        if let Some(&(_, stack)) = known {
            return Some(stack);
        }
        let (filename, name) = ("tag".into(), tag.name().into());
        let frame = self.stacks.push_frame(Frame { filename, name, ..Frame::default() });
        let stack = self.stacks.push(&[frame]);
        self.known.push((tag, stack));
        Some(stack)
    }
}

fn backed_parts(tags: &mut Tags<'_>, segment: &SegmentView) -> Vec<Segment> {
    let parts = backed_runs(segment);
    parts.map(|(address, bytes, run)| backed_part(tags, segment, address, bytes, run)).collect()
}

fn backed_part(
    tags: &mut Tags<'_>,
    segment: &SegmentView,
    address: u64,
    bytes: u64,
    run: &[BlockView],
) -> Segment {
    let device = tags.device;
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let pool = device.pools.name_of(segment.pool).map(|(id0, id1)| PoolId(small(id0), small(id1)));
    let mut part = Segment {
        device: device.ordinal,
        address,
        bytes,
        allocated_bytes: 0,
        active_bytes: 0,
        requested_bytes: 0,
        stream: device.handle_at(segment.stream),
        is_small: segment.class == SizeClass::Small,
        pool: Some(pool.unwrap_or_default()),
        is_expandable: Some(segment.kind == SegmentKind::Mapped),
        stack: None,
        blocks: run.iter().map(|view| block(view, tags)).collect(),
    };
    part.sum_blocks();
    part
}

fn block(block: &BlockView, tags: &mut Tags<'_>) -> snapshot::Block {
    snapshot::Block {
        address: block.address,
        bytes: block.bytes,
        requested_bytes: block.requested_bytes,
        state: match block.state {
            BlockState::Live => snapshot::BlockState::Allocated,
            BlockState::Pending | BlockState::Quarantined => snapshot::BlockState::PendingFree,
            _ => snapshot::BlockState::Inactive,
        },
        stack: tags.of(block),
    }
}
