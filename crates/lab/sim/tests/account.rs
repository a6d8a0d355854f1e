//! What calls cost, how they are counted, and faults by plan.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use drystone_driver::{Call, Driver, ErrorCode, MemoryPoolConfig, Stream};
use drystone_sim::{CostTable, FaultMode, FaultPlan, GRANULARITY_BYTES as G, SimConfig, SimDevice};

fn device() -> SimDevice {
    SimDevice::new(SimConfig { total_bytes: 64 * G, ..SimConfig::default() })
}

#[test]
fn the_bill_is_the_sum_of_the_calls() {
    let device = device();
    let address = device.reserve(8 * G, 0).unwrap();
    let (one, seven) = (device.create(G).unwrap(), device.create(7 * G).unwrap());
    device.map(address, G, one).unwrap();
    device.map(address + G, 7 * G, seven).unwrap();
    device.set_access(address, 8 * G).unwrap();
    let create = 2.0 * 193.0 + 6.0 * 54.0;
    let map = 2.0 * 1.45 + 6.0 * 0.41;
    // Two mappings: the larger costs no more than the other, and none is free.
    let set_access = 2.0 * 36.0;
    let mut expected = 2.0 + create + map + set_access;
    assert!((device.driver_time_us() - expected).abs() < 1e-9);
    device.unmap(address, 8 * G).unwrap();
    device.release(one).unwrap();
    expected += 2.0 * 25.6 + 23.0;
    assert!((device.driver_time_us() - expected).abs() < 1e-9);
    assert_eq!(device.calls(), 8);
    assert_eq!(device.bytes_of(Call::Unmap), 2 * G, "by mapping");
    assert_eq!((device.calls_of(Call::Create), device.bytes_of(Call::Create)), (2, 8 * G));
}

/// `"cuMemCreate": (193.0, 54.0),` -> (193.0, 54.0)
fn rig_cost(table: &str, name: &str) -> Option<(f64, f64)> {
    let (_, row) = table.split_once(&format!("\"{name}\": ("))?;
    let (first, further) = row.split_once(')')?.0.split_once(", ")?;
    Some((first.parse().ok()?, further.parse().ok()?))
}

/// Calls without a price in the rig: none of PyTorch's allocators that it runs makes them. Peers
/// and other processes are out of its reach, and its `cudaMallocAsync` takes from the default
/// memory pool alone. Nor do any move live memory.
const UNPRICED_BY_THE_RIG: [Call; 9] = [
    Call::CreateMemoryPool,
    Call::DestroyMemoryPool,
    Call::TrimMemoryPool,
    Call::EnablePeerAccess,
    Call::Export,
    Call::Import,
    Call::Hold,
    Call::Copy,
    Call::FinishCopies,
];

#[test]
fn the_pytorch_rig_prices_every_call_alike() {
    let rig = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/rig");
    let Ok(script) = std::fs::read_to_string(rig.join("compare.py")) else {
        println!("skipped: needs the PyTorch rig in ../shared/rig");
        return;
    };
    let (_, table) = script.split_once("COSTS = {").unwrap();
    let further = |file: &str| std::fs::read_to_string(rig.join("costs").join(file)).unwrap();
    let tables = [
        (CostTable::a100(), String::new()),
        (CostTable::vattention(), further("vattention.json")),
        (CostTable::small(), further("kvcached-25gb.json")),
    ];
    for (costs, further) in tables {
        let further = further.replace('[', "(").replace(']', ")");
        // The host's memory has the same call, at a price of its own.
        let is_priced = |call: &Call| !call.is_query() && *call != Call::CreateOnHost;
        for call in Call::ALL.into_iter().filter(is_priced) {
            let (name, cost) = (call.cuda_name(), costs.get(call));
            let own = (cost.first_us, cost.per_further_2mib_us);
            let expected = (!UNPRICED_BY_THE_RIG.contains(&call)).then_some(own);
            let rig = rig_cost(&further, name).or_else(|| rig_cost(table, name));
            assert_eq!(rig, expected, "{call:?}");
        }
    }
}

#[test]
fn questions_are_not_counted_and_refused_calls_are() {
    let device = device();
    device.memory_info().unwrap();
    device.stream_uid(Stream::DEFAULT).unwrap();
    device.capture_status(Stream::DEFAULT).unwrap();
    assert_eq!((device.calls(), device.driver_time_us()), (0, 0.0));
    assert_eq!(device.calls_of(Call::MemoryInfo), 1);
    device.malloc(65 * G).unwrap_err();
    assert_eq!((device.calls(), device.driver_time_us()), (1, 100.0 + 64.0));
}

#[test]
fn a_planned_fault_strikes_before_anything_changes() {
    let device = device();
    let plan = FaultPlan {
        call: Call::Create,
        nth: 2,
        mode: FaultMode::Once,
        code: ErrorCode::OutOfMemory,
    };
    device.install_fault(plan);
    let first = device.create(G).unwrap();
    let error = device.create(3 * G).unwrap_err();
    assert_eq!((error.code, error.bytes), (ErrorCode::OutOfMemory, 3 * G));
    assert_eq!((device.physical_bytes(), device.live_objects().handles), (G, 1));
    let second = device.create(3 * G).unwrap();
    assert_eq!(device.faults_fired(), 1);
    device.release(first).unwrap();
    device.release(second).unwrap();

    device.install_fault(FaultPlan { mode: FaultMode::Forever, nth: 1, ..plan });
    device.clear_faults();
    device.create(G).unwrap();
    assert_eq!((device.faults_fired(), device.calls_of(Call::Create)), (0, 4));
}

#[test]
fn live_objects_counts_every_kind() {
    let device = device();
    assert!(device.live_objects().is_empty());
    let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
    let address = device.reserve(2 * G, 0).unwrap();
    let handle = device.create(G).unwrap();
    device.map(address, G, handle).unwrap();
    device.map(address + G, G, handle).unwrap();
    let plain = device.malloc(512).unwrap();
    let pooled = device.malloc_async(pool, 512, Stream::DEFAULT).unwrap();
    let event = device.create_event().unwrap();
    let live = device.live_objects();
    assert_eq!((live.reservations, live.handles, live.mappings), (1, 1, 2));
    assert_eq!((live.plain_allocations, live.async_allocations, live.events), (1, 1, 1));
    assert_eq!(live.memory_pools, 1);
    device.destroy_event(event).unwrap();
    device.destroy_memory_pool(pool).unwrap();
    assert_eq!(device.live_objects().memory_pools, 0);
    device.free_async(pooled, Stream::DEFAULT).unwrap();
    device.free(plain).unwrap();
    device.unmap(address, 2 * G).unwrap();
    device.unreserve(address, 2 * G).unwrap();
    assert!(!device.live_objects().is_empty());
    device.release(handle).unwrap();
    assert!(device.live_objects().is_empty());
}
