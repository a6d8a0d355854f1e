//! Snapshots of replays, and what PyTorch's viewers make of them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use drystone_trace::codec::{self, Limits};
use drystone_trace::model::Trace;
use drystone_trace::replay::{
    self, BlockState, DriverCost, Layout, LayoutBlock, LayoutSegment, Refusal, Replayed, Usage,
};
use drystone_trace::snapshot::Snapshot;

const TRACE: &str = "op,id,bytes,stream,time_ns\na,0,1000,0,0\na,1,3000,3,1000\nf,0,1000,0,2000\n\
    a,0,500,0,3000\na,2,700,0,4000\nf,1,3000,3,5000\nm,0,0,0,6000\na,1,99999,0,7000\n";

fn trace(text: &[u8]) -> Trace {
    codec::read(text, "t", &Limits::default()).unwrap().remove(0)
}

/// Puts one block behind the other in a segment that grows, and never uses memory again.
#[derive(Default)]
struct Growing(LayoutSegment);

impl Replayed for Growing {
    fn advance(&mut self, _time_ns: u64) {}

    fn allocate(&mut self, bytes: u64, stream: u16, _pool: u8) -> Result<u64, Refusal> {
        if bytes > 10_000 {
            return Err(Refusal { message: "too much".to_owned() });
        }
        let address = (1 << 40) + self.0.bytes;
        let state = BlockState::Live;
        let rounded = bytes.next_multiple_of(512);
        let block = LayoutBlock { address, bytes: rounded, requested_bytes: bytes, stream, state };
        self.0.blocks.push(block);
        self.0.bytes += rounded;
        Ok(address)
    }

    fn free(&mut self, address: u64) {
        let block = self.0.blocks.iter_mut().find(|block| block.address == address).unwrap();
        block.state = if block.stream == 0 { BlockState::Free } else { BlockState::Pending };
    }

    fn record_stream(&mut self, _address: u64, _stream: u16) {}

    fn empty_cache(&mut self) {}

    fn usage(&self) -> Usage {
        Usage { reserved_bytes: self.0.bytes, ..Usage::default() }
    }

    fn driver_cost(&self) -> DriverCost {
        DriverCost::default()
    }

    fn layout(&self) -> Option<Layout> {
        let segment = LayoutSegment { address: 1 << 40, is_expandable: true, ..self.0.clone() };
        Some(Layout { segments: vec![segment] })
    }
}

fn replayed() -> Snapshot {
    replay::record(&trace(TRACE.as_bytes()), &mut Growing::default()).unwrap()
}

#[test]
fn a_recorded_replay_reads_back() {
    let snapshot = replayed();
    assert_eq!(snapshot.device_traces[0].len(), 12, "{:?}", snapshot.device_traces);
    for json in [false, true] {
        let mut file = Vec::new();
        if json { snapshot.write_json(&mut file) } else { snapshot.write_pickle(&mut file) }
            .unwrap();
        let again = trace(&file);
        again.check().unwrap();
        assert!(*again.recording.as_ref().unwrap().snapshot == snapshot);
    }
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
        let original = folder.join("../../../../shared/snapshots").join(name);
        if original.exists() {
            let traces = codec::read_path(&original, &Limits::default()).unwrap();
            let snapshot = &traces[0].recording.as_ref().unwrap().snapshot;
            open(name, snapshot, Some(&original));
        }
    }
}
