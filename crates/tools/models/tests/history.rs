//! History: what a process did before must not decide how much memory it takes now.
//!
//! Each recorded program runs alone, and after another one that needs no more memory and has freed
//! all of it. Invariant: reserved memory then peaks where it does alone, within half a per cent.
//!
//!     cargo test --release -p drystone-models --test history -- --nocapture
//!
//! prints what every pair of programs gives, for PyTorch's allocators too.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

#[allow(dead_code, reason = "the other tests use the rest")]
mod support;

use std::collections::BTreeMap;

use drystone_models::{Candidate, DRYSTONE_VMM, TORCH_EXPANDABLE, TORCH_NATIVE};
use drystone_sim::{SimConfig, SimDevice};
use drystone_trace::model::{Event, Kind, Trace};
use drystone_trace::replay::{Options, run};
use support::find;

/// Programs on one and several streams, of fixed and varying sizes; the first four take a few
/// seconds in all, and are all that an unoptimised build runs.
const PROGRAMS: [&str; 8] = [
    "graphsage_neighbor_sampling",
    "llama_1b_fsdp2_8way",
    "resnet50_train_eval_amp",
    "convnext_base_multires_train",
    "llama3_8b_generate_dyncache",
    "llama3_8b_lora_sft_varlen",
    "moe_mixtral_small_train",
    "t5_large_seq2seq_varlen",
];
const SHORT: usize = 4;

/// Of reserved memory at its peak.
const TOLERANCE: f64 = 0.005;

/// A program that ends, with everything freed, before another one starts.
fn one_after_the_other(first: &Trace, second: &Trace) -> Trace {
    let mut live: BTreeMap<u32, Event> = BTreeMap::new();
    for event in &first.events {
        match event.kind {
            Kind::Allocate => {
                live.insert(event.block, *event);
            }
            Kind::Free => {
                live.remove(&event.block);
            }
            _ => {}
        }
    }
    let end_ns = first.events.last().map_or(0, |event| event.time_ns);
    let frees =
        live.into_values().map(|event| Event { kind: Kind::Free, time_ns: end_ns, ..event });
    let shifted = second.events.iter().map(|e| Event { time_ns: e.time_ns + end_ns, ..*e });
    Trace {
        name: format!("{} after {}", second.name, first.name),
        events: first.events.iter().copied().chain(frees).chain(shifted).collect(),
        blocks: first.blocks.max(second.blocks),
        streams: first.streams.max(second.streams),
        pools: first.pools.max(second.pools),
        ..Trace::default()
    }
}

/// Peaks of requested and of reserved memory.
fn peaks(trace: &Trace, allocator: &str) -> (u64, u64) {
    let device = SimDevice::new(SimConfig { total_bytes: 1 << 40, ..SimConfig::default() });
    let configuration = if allocator == DRYSTONE_VMM { "prefer:memory" } else { "" };
    let candidate = Candidate::named(allocator, configuration).unwrap();
    let mut allocator = candidate.build(&device, trace.streams, trace.pools).unwrap();
    let options = Options { curve_points: 2, timed_passes: 0 };
    let metrics = run(trace, &mut *allocator, &options).metrics;
    (metrics.peak_requested_bytes, metrics.peak_reserved_bytes)
}

/// By how much a program's peak of reserved memory changes after another one, as a share of it.
fn change(first: &Trace, second: &Trace, allocator: &str) -> Option<f64> {
    let (_, alone) = peaks(second, allocator);
    let (requested, after) = peaks(&one_after_the_other(first, second), allocator);
    let is_seconds = requested == peaks(second, allocator).0;
    is_seconds.then(|| after as f64 / alone as f64 - 1.0)
}

#[test]
fn reserved_memory_does_not_depend_on_what_ran_before() {
    let names = if cfg!(debug_assertions) { &PROGRAMS[..SHORT] } else { &PROGRAMS[..] };
    let programs: Vec<Trace> = names.iter().filter_map(|name| find(name).unwrap()).collect();
    assert_eq!(programs.len(), names.len(), "they are in the repository");
    let mut worst: f64 = 0.0;
    for first in &programs {
        for second in programs.iter().filter(|second| second.name != first.name) {
            let Some(changed) = change(first, second, DRYSTONE_VMM) else { continue };
            worst = worst.max(changed.abs());
            println!("{:>8.3} %  {} after {}", 100.0 * changed, second.name, first.name);
            if !cfg!(debug_assertions) {
                for other in [TORCH_EXPANDABLE, TORCH_NATIVE] {
                    let changed = change(first, second, other).unwrap_or_default();
                    println!("{:>8.3} %  the same with {other}", 100.0 * changed);
                }
            }
        }
    }
    assert!(worst < TOLERANCE, "{:.3} % at worst", 100.0 * worst);
}
