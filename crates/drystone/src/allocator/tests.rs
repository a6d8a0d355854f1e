//! An allocator whose state machine broke: what it refuses, and what can still be asked.

use std::panic::{AssertUnwindSafe, catch_unwind};

use drystone_core::{FreeError, Poisoned, PoolId, RecordStreamError, RequestError, StreamError};
use drystone_driver::{DriverError, ErrorCode, Stream};
use drystone_sim::{SimConfig, SimDevice};

use super::*;
use crate::error::AllocateError;
use crate::options::PoolOptions;

const MIB: u64 = 1 << 20;

fn is_poisoned(error: &DriverError) -> bool {
    error.code == ErrorCode::Poisoned
}

#[test]
fn p9_a_broken_state_machine_refuses_all_but_to_be_looked_at() {
    for backend in [Backend::Vmm, Backend::Malloc, Backend::Async] {
        let device = SimDevice::new(SimConfig::default());
        let options = Options::default().with_backend(backend);
        let allocator = Allocator::new(Arc::new(device.clone()), &options).unwrap();
        let stream = allocator.add_stream(Stream::DEFAULT).unwrap();
        let pool = allocator.add_pool();
        let kept = allocator.allocate_raw(PoolId::DEFAULT, stream, 3 * MIB).unwrap();
        let before = allocator.stats();
        let state = allocator.engine.backend.state();
        let broken = AssertUnwindSafe(|| state.change(|_| panic!("an invariant broke")));
        assert!(catch_unwind(broken).is_err());
        let held = device.live_objects();

        for bytes in [MIB, 40 * MIB] {
            let refused = allocator.allocate_raw(PoolId::DEFAULT, stream, bytes).unwrap_err();
            assert_eq!(refused, AllocateError::Request(RequestError::Poisoned));
        }
        assert_eq!(allocator.free(kept.address), Err(FreeError::Poisoned));
        assert_eq!(allocator.free_sized(kept.address, 3 * MIB), Err(FreeError::Poisoned));
        let recorded = allocator.record_stream(kept.address, stream);
        assert_eq!(recorded, Err(RecordStreamError::Poisoned));
        assert_eq!(allocator.retire_stream(stream), Err(StreamError::Poisoned));
        assert_eq!(allocator.release_pool(pool), Err(RequestError::Poisoned));
        let with = PoolOptions::default().with_backend(backend);
        let added = allocator.add_pool_with(&with);
        match backend {
            Backend::Async => assert_eq!(added, Ok(PoolId::DEFAULT)),
            _ => assert_eq!(added, Err(BuildError::Poisoned(Poisoned))),
        }
        assert!(is_poisoned(&allocator.trim().unwrap_err().error));
        assert!(is_poisoned(&allocator.trim_passed().unwrap_err().error));
        if backend != Backend::Async {
            let place = kept.address..kept.address + MIB;
            let refused = allocator.allocate_at(PoolId::DEFAULT, stream, MIB, place);
            assert_eq!(refused, Err(RequestError::Poisoned));
            assert!(is_poisoned(&allocator.enable_peer_access(1).unwrap_err().error));
            let refused = PinError::Block(FreeError::Poisoned);
            assert_eq!(allocator.pin_mapping(kept.address).unwrap_err(), refused);
            assert_eq!(allocator.unpin_mapping(kept.address).unwrap_err(), refused);
        }
        let other = device.create_stream();
        assert!(is_poisoned(&allocator.add_stream(other).unwrap_err()));

        assert_eq!(allocator.stats(), before);
        assert_eq!(allocator.block_at(kept.address).unwrap().requested_bytes, 3 * MIB);
        assert!(allocator.snapshot().iter().any(|segment| segment.address <= kept.address));
        let said = RequestError::Poisoned.to_string();
        assert!(said.contains("report the defect, and restart the process"), "{said}");
        drop(allocator);
        // The block may be in use: its memory stays.
        assert_eq!(device.live_objects(), held);
    }
}
