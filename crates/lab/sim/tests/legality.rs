//! The device does in captures what its table says, row by row. And each call fails by plan.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use drystone_driver::{
    Call, CaptureMode, CaptureStatus, Descriptor, Driver, DriverError, ErrorCode, Event, Handle,
    MemoryPool, MemoryPoolConfig, Stream,
};
use drystone_sim::{
    FaultMode, FaultPlan, GRANULARITY_BYTES as G, Harsh, Legality, MODES, Rule, SimConfig,
    SimDevice, Violation,
};
use std::thread;

/// A device with something for each call.
struct Bench {
    device: SimDevice,
    plain: u64,
    /// Two granules: the first mapped with access, the second not mapped.
    mapped: u64,
    handle: Handle,
    descriptor: Descriptor,
    spare: u64,
    pool: MemoryPool,
    pooled: u64,
    event: Event,
}

impl Bench {
    fn new(harsh: Harsh) -> Self {
        let config = SimConfig { strict: true, peers: vec![1], harsh, ..SimConfig::default() };
        let device = SimDevice::new(config);
        let (plain, mapped) = (device.malloc(G).unwrap(), device.reserve(2 * G, 0).unwrap());
        let (handle, spare) = (device.create(G).unwrap(), device.reserve(G, 0).unwrap());
        device.map(mapped, G, handle).unwrap();
        device.set_access(mapped, G).unwrap();
        let descriptor = device.export(handle).unwrap();
        let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
        let pooled = device.malloc_async(pool, G, Stream::DEFAULT).unwrap();
        let event = device.create_event().unwrap();
        device.record(event, Stream::DEFAULT).unwrap();
        Self { device, plain, mapped, handle, descriptor, spare, pool, pooled, event }
    }

    fn make(&self, call: Call) -> Result<(), DriverError> {
        let Self { device, plain, mapped, handle, descriptor, spare, pool, pooled, event } = self;
        let stream = Stream::DEFAULT;
        match call {
            Call::MemoryInfo => device.memory_info().map(drop),
            Call::Reserve => device.reserve(G, 0).map(drop),
            Call::Unreserve => device.unreserve(*spare, G),
            Call::Create => device.create(G).map(drop),
            Call::CreateOnHost => device.create_on_host(G).map(drop),
            Call::Release => device.release(*handle),
            Call::Map => device.map(mapped + G, G, *handle),
            Call::SetAccess => device.set_access(*mapped, G),
            Call::Unmap => device.unmap(*mapped, G),
            Call::Export => device.export(*handle).map(drop),
            Call::Import => device.import(descriptor).map(drop),
            Call::Malloc => device.malloc(G).map(drop),
            Call::Free => device.free(*plain),
            Call::CreateMemoryPool => {
                device.create_memory_pool(&MemoryPoolConfig::default()).map(drop)
            }
            Call::DestroyMemoryPool => device.destroy_memory_pool(*pool),
            Call::TrimMemoryPool => device.trim_memory_pool(*pool, 0),
            Call::MemoryPoolUsage => device.memory_pool_usage(*pool).map(drop),
            Call::MallocAsync => device.malloc_async(*pool, G, stream).map(drop),
            Call::FreeAsync => device.free_async(*pooled, stream),
            Call::CreateEvent => device.create_event().map(drop),
            Call::DestroyEvent => device.destroy_event(*event),
            Call::Record => device.record(*event, stream),
            Call::Query => device.query(*event).map(drop),
            Call::Wait => device.wait(stream, *event),
            Call::SynchronizeEvent => device.synchronize_event(*event),
            Call::SynchronizeStream => device.synchronize_stream(stream),
            Call::SynchronizeDevice => device.synchronize_device(),
            Call::StreamUid => device.stream_uid(stream).map(drop),
            Call::CaptureStatus => device.capture_status(stream).map(drop),
            Call::ExchangeCaptureMode => {
                device.exchange_capture_mode(CaptureMode::Relaxed).map(drop)
            }
            Call::EnablePeerAccess => device.enable_peer_access(1),
            Call::Hold => device.hold(&[]).map(|hold| device.let_go(hold)),
            Call::Copy => device.copy(*mapped, *mapped, 512),
            Call::FinishCopies => device.finish_copies(),
        }
    }
}

#[test]
fn any_call_can_be_made_to_fail_and_a_strict_device_does_not_mind() {
    for call in Call::ALL {
        for made in Call::ALL {
            let bench = Bench::new(Harsh::ALL);
            let code = ErrorCode::InvalidValue;
            bench.device.install_fault(FaultPlan { call, nth: 1, mode: FaultMode::Forever, code });
            let failed = bench.make(made).err().map(|error| (error.call, error.code));
            assert_eq!(failed, (made == call).then_some((call, code)), "{made:?}");
            assert_eq!(bench.device.violations(), [], "{call:?}");
        }
    }
}

/// In the calling thread, or in another one.
fn in_thread<T: Send>(is_own: bool, body: impl FnOnce() -> T + Send) -> T {
    if is_own { body() } else { thread::scope(|scope| scope.spawn(body).join().unwrap()) }
}

/// Makes the call while a stream is captured. A refusal must break the capture and be noted.
fn is_legal(
    call: Call,
    harsh: Harsh,
    capture: CaptureMode,
    is_own: bool,
    mode: CaptureMode,
) -> bool {
    let bench = Bench::new(harsh);
    let device = &bench.device;
    let stream = device.create_stream();
    device.begin_capture(stream, capture).unwrap();
    let result = in_thread(is_own, || {
        device.exchange_capture_mode(mode).unwrap();
        bench.make(call)
    });
    device.exchange_capture_mode(CaptureMode::Global).unwrap();
    let status = device.capture_status(stream).unwrap();
    let noted = device.take_violations();
    match result {
        Ok(()) => {
            assert_eq!((status, noted.as_slice()), (CaptureStatus::Active, [].as_slice()));
            device.end_capture(stream).unwrap();
            true
        }
        Err(error) => {
            let code = error.code;
            assert_eq!((error.call, status), (call, CaptureStatus::Invalidated));
            assert_eq!(noted, [Violation::IllegalCall { call, code }]);
            device.end_capture(stream).unwrap_err();
            false
        }
    }
}

#[test]
fn each_call_does_in_each_capture_what_its_row_says() {
    for call in Call::ALL {
        for capture in MODES {
            for (is_own, mode) in [true, false].into_iter().flat_map(|own| MODES.map(|m| (own, m)))
            {
                let expected = Rule::of(call).legality.permits(capture, is_own, mode);
                let found = is_legal(call, Harsh::ALL, capture, is_own, mode);
                assert_eq!(found, expected, "{call:?} {capture:?} own: {is_own} {mode:?}");
            }
        }
    }
}

#[test]
fn the_rule_of_the_modes_is_the_documented_one() {
    use CaptureMode::{Global, ThreadLocal};
    // (mode of the capture, whether the capturing thread calls, mode of the calling thread)
    let forbidden = [
        (Global, true, Global),
        (Global, true, ThreadLocal),
        (Global, false, Global),
        (ThreadLocal, true, Global),
        (ThreadLocal, true, ThreadLocal),
    ];
    for capture in MODES {
        for (is_own, mode) in [true, false].into_iter().flat_map(|own| MODES.map(|m| (own, m))) {
            let case = (capture, is_own, mode);
            let permits = |legality: Legality| legality.permits(capture, is_own, mode);
            assert_eq!(permits(Legality::Unsafe), !forbidden.contains(&case), "{case:?}");
            assert_eq!(permits(Legality::Unproven), permits(Legality::Unsafe), "{case:?}");
            assert!(permits(Legality::Always) && permits(Legality::Captured));
            assert!(!permits(Legality::Nobody));
        }
    }
}

#[test]
fn a_kind_device_lets_through_what_nobody_has_published_and_pool_attributes() {
    let is_spared = |&call: &Call| {
        call == Call::MemoryPoolUsage || Rule::of(call).legality == Legality::Unproven
    };
    for call in Call::ALL.into_iter().filter(is_spared) {
        let global = CaptureMode::Global;
        assert!(is_legal(call, Harsh::NONE, global, true, global), "{call:?}");
        assert!(!is_legal(call, Harsh::ALL, global, true, global), "{call:?}");
    }
}

#[test]
fn a_call_about_what_is_captured_itself_breaks_the_capture_in_any_mode() {
    let relaxed = CaptureMode::Relaxed;
    for rule in Rule::table().iter().filter(|rule| rule.breaks_its_own) {
        let device = Bench::new(Harsh::ALL).device;
        device.exchange_capture_mode(relaxed).unwrap();
        let (stream, event) = (device.create_stream(), device.create_event().unwrap());
        device.begin_capture(stream, relaxed).unwrap();
        device.record(event, stream).unwrap();
        let is_refused = match rule.call {
            Some(Call::Query) => device.query(event).is_err(),
            Some(Call::SynchronizeEvent) => device.synchronize_event(event).is_err(),
            Some(Call::SynchronizeStream) => device.synchronize_stream(stream).is_err(),
            Some(Call::StreamUid) => device.stream_id(stream).is_err(),
            Some(call) => panic!("no case for {call:?}"),
            None => device.query_stream(stream).is_err(),
        };
        assert!(is_refused, "{}", rule.function);
        assert_eq!(device.capture_status(stream), Ok(CaptureStatus::Invalidated));
        device.end_capture(stream).unwrap_err();
    }
}

#[test]
fn functions_beside_the_trait_go_by_the_table_too() {
    let device = Bench::new(Harsh::ALL).device;
    for rule in Rule::table().iter().filter(|rule| rule.call.is_none()) {
        let stream = device.create_stream();
        device.begin_capture(stream, CaptureMode::Global).unwrap();
        let expected = rule.legality.permits(CaptureMode::Global, true, CaptureMode::Global);
        assert_eq!(device.permit(rule.function).is_ok(), expected, "{}", rule.function);
        assert_eq!(device.end_capture(stream).is_ok(), expected, "{}", rule.function);
    }
    device.permit("cuLaunchKernel").unwrap();
    let stream = device.create_stream();
    device.begin_capture(stream, CaptureMode::Global).unwrap();
    device.permit("cuTeleport").unwrap_err();
    let noted = device.take_violations();
    assert!(noted.contains(&Violation::ForbiddenCall { function: "cuStreamQuery" }));
}

#[test]
fn the_columns_by_mode_follow_from_the_kind() {
    let page = include_str!("../captures.md");
    for rule in Rule::table() {
        let cell = |mode| {
            let may = |is_own| rule.legality.permits(mode, is_own, CaptureMode::Global);
            match (may(true), may(false)) {
                (true, true) => "legal",
                (true, false) => "own only",
                (false, true) => "others only",
                (false, false) => "breaks",
            }
        };
        let (cells, head) = (MODES.map(cell).join(" | "), format!("| `{}` | ", rule.function));
        let mut rows = page.lines().filter(|line| line.starts_with(&head));
        assert!(rows.all(|row| row.contains(&format!(" | {cells} | "))), "{head}{cells}");
    }
}
