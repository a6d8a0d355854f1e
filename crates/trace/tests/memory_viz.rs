//! Snapshots of replays, and what PyTorch's viewers make of them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use drystone_trace::codec::{self, Limits};
use drystone_trace::model::{Kind, Trace};
use drystone_trace::replay::{BlockState, Layout, LayoutBlock, LayoutSegment};
use drystone_trace::snapshot::{Action, Snapshot, SnapshotBuilder};

const TRACE: &str = "op,id,bytes,stream,time_ns\na,0,1000,0,0\na,1,3000,3,1000\nf,0,1000,0,2000\n\
    a,0,500,0,3000\na,2,700,0,4000\nf,1,3000,3,5000\nm,0,0,0,6000\n";

fn trace(text: &[u8]) -> Trace {
    codec::read(text, "t", &Limits::default()).unwrap().remove(0)
}

/// What an allocator that never reuses memory leaves behind, with a hole in the middle.
fn replayed() -> Snapshot {
    let trace = trace(TRACE.as_bytes());
    let mut builder = SnapshotBuilder::new(&trace);
    let block = |address, bytes, requested_bytes, state| LayoutBlock {
        address,
        bytes,
        requested_bytes,
        stream: 0,
        state,
    };
    let segment = LayoutSegment {
        address: 1 << 40,
        bytes: 8192,
        stream: 1,
        pool: 0,
        is_small: true,
        is_expandable: true,
        blocks: vec![
            block(1 << 40, 1024, 0, BlockState::Free),
            block((1 << 40) + 1024, 3072, 3000, BlockState::Pending),
            block((1 << 40) + 4096, 2048, 0, BlockState::Hollow),
            block((1 << 40) + 6144, 512, 500, BlockState::Live),
            block((1 << 40) + 6656, 1536, 700, BlockState::Live),
        ],
    };
    builder.segment(Action::SegmentMap, 0, &segment);
    let mut addresses = vec![0; trace.blocks as usize];
    let mut places = [0, 1024, 6144, 6656].iter().map(|offset| (1 << 40) + offset);
    for (index, event) in trace.events.iter().enumerate() {
        let address = &mut addresses[event.block as usize];
        if event.kind == Kind::Allocate {
            *address = places.next().unwrap();
        }
        builder.event(index, *address);
    }
    builder.refused(3, 4096);
    let settings = serde_json::json!({"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1});
    builder.finish(&Layout { segments: vec![segment] }, settings)
}

#[test]
fn a_replay_becomes_a_snapshot_that_reads_back() {
    let snapshot = replayed();
    let actions: Vec<Action> = snapshot.device_traces[0].iter().map(|e| e.action).collect();
    use Action::{Alloc, FreeCompleted, FreeRequested, OutOfMemory, SegmentMap};
    assert_eq!(
        actions,
        [
            SegmentMap,
            Alloc,
            Alloc,
            FreeRequested,
            FreeCompleted,
            Alloc,
            Alloc,
            FreeRequested, // still pending
            OutOfMemory,
        ]
    );
    let sizes: Vec<_> = snapshot
        .segments
        .iter()
        .map(|s| (s.bytes, s.allocated_bytes, s.active_bytes, s.requested_bytes))
        .collect();
    assert_eq!(sizes, [(4096, 0, 3072, 3000), (2048, 2048, 2048, 1200)]);

    let mut file = Vec::new();
    snapshot.write_pickle(&mut file).unwrap();
    let again = trace(&file);
    again.check().unwrap();
    let kept = &again.recording.as_ref().unwrap().snapshot;
    assert!(**kept == snapshot);
    let allocated = |trace: &Trace| -> Vec<(u64, u64)> {
        let events = trace.events.iter().filter(|event| event.kind == Kind::Allocate);
        events.map(|event| (event.time_ns, event.bytes)).collect()
    };
    assert_eq!(allocated(&again), allocated(&trace(TRACE.as_bytes())));
}

/// Runs `memory_viz.py` where `MEMORY_VIZ` names PyTorch's `_memory_viz.py`.
#[test]
fn viewers_open_what_is_written() {
    let Some(viz) = env::var_os("MEMORY_VIZ") else {
        println!("skipped: needs MEMORY_VIZ=PATH of torch/cuda/_memory_viz.py and python3");
        return;
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let open = |name: &str, snapshot: &Snapshot, original: Option<&Path>| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        snapshot.write_pickle(fs::File::create(&path).unwrap()).unwrap();
        let mut command = Command::new("python3");
        command.arg(folder.join("tests/memory_viz.py")).arg(&viz).arg(&path).args(original);
        assert!(command.status().unwrap().success(), "{command:?}");
    };
    open("replayed.pickle", &replayed(), None);
    for name in ["gpt2_train.pickle", "resnet50_train.pickle"] {
        let original = folder.join("../../../shared/snapshots").join(name);
        if original.exists() {
            let traces = codec::read_path(&original, &Limits::default()).unwrap();
            let snapshot = &traces[0].recording.as_ref().unwrap().snapshot;
            open(name, snapshot, Some(&original));
        }
    }
}
