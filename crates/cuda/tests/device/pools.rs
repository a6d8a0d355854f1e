//! Memory pools and stream-ordered memory.

use drystone_driver::{Driver, ErrorCode, MemoryPool, MemoryPoolConfig, ShareableHandle, Stream};

use crate::raw;
use crate::scenario::open;

#[test]
fn a_pool_hands_out_memory_keeps_it_when_told_to_and_gives_it_back() {
    crate::scenario!(1, "", || {
        let device = open();
        raw::set_current(raw::primary(0));
        let stream = Stream(raw::create_stream());
        let config = MemoryPoolConfig::default().with_release_threshold_bytes(u64::MAX);
        let pool = device.create_memory_pool(&config).unwrap();
        let address = device.malloc_async(pool, 4 << 20, stream).unwrap();
        device.synchronize_stream(stream).unwrap();
        raw::write(address, b"pooled");
        assert_eq!(raw::read(address, 6), b"pooled");
        let usage = device.memory_pool_usage(pool).unwrap();
        assert_eq!(usage.used_bytes, 4 << 20);
        assert!(usage.reserved_bytes >= usage.used_bytes);
        device.free_async(address, stream).unwrap();
        device.synchronize_stream(stream).unwrap();
        let usage = device.memory_pool_usage(pool).unwrap();
        assert_eq!((usage.used_bytes, usage.used_peak_bytes), (0, 4 << 20));
        assert!(usage.reserved_bytes > 0, "the threshold keeps it");
        device.trim_memory_pool(pool, 0).unwrap();
        assert_eq!(device.memory_pool_usage(pool).unwrap().reserved_bytes, 0);
        device.destroy_memory_pool(pool).unwrap();
        raw::destroy_stream(stream.0);
    });
}

#[test]
fn every_option_of_a_pool_reaches_the_driver() {
    crate::scenario!(1, "", || {
        let device = open();
        for bits in 0..8_u32 {
            let config = MemoryPoolConfig::default()
                .with_release_threshold_bytes(u64::from(bits) << 20)
                .with_reuse_after_events(bits & 1 != 0)
                .with_opportunistic_reuse(bits & 2 != 0)
                .with_added_dependencies(bits & 4 != 0);
            let pool = device.create_memory_pool(&config).unwrap();
            let seen = (1..=3).map(|attribute| raw::pool_flag(pool.0, attribute)).rev();
            let seen = seen.fold(0, |bits, flag| bits << 1 | u32::from(flag));
            assert_eq!((seen, raw::pool_threshold(pool.0)), (bits, u64::from(bits) << 20));
            device.destroy_memory_pool(pool).unwrap();
        }
    });
}

#[test]
fn a_pool_that_is_not_there_is_an_invalid_handle() {
    crate::scenario!(1, "", || {
        let device = open();
        let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
        device.destroy_memory_pool(pool).unwrap();
        // A real driver might take it for a pool.
        let never_asked = (ErrorCode::InvalidHandle, "");
        for pool in [pool, MemoryPool(0), MemoryPool(0x1234)] {
            let gone = device.destroy_memory_pool(pool).unwrap_err();
            assert_eq!((gone.code, gone.cuda_error), never_asked);
            let gone = device.trim_memory_pool(pool, 0).unwrap_err();
            assert_eq!((gone.code, gone.cuda_error), never_asked);
            let gone = device.memory_pool_usage(pool).unwrap_err();
            assert_eq!((gone.code, gone.cuda_error), never_asked);
        }
    });
}

#[test]
fn a_pool_is_exportable_where_the_device_can_share() {
    crate::scenario!(1, "", || {
        let device = open();
        let config = MemoryPoolConfig::default().with_export(true);
        match device.create_memory_pool(&config) {
            Ok(pool) => {
                assert_ne!(device.info().shareable_handle, ShareableHandle::None);
                device.destroy_memory_pool(pool).unwrap();
            }
            Err(error) => assert_eq!(error.code, ErrorCode::NotSupported),
        }
    });
}

#[test]
fn a_refused_request_leaves_the_pool_as_it_was() {
    crate::scenario!(1, "", || {
        let device = open();
        let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
        let error = device.malloc_async(pool, 1 << 50, Stream::DEFAULT).unwrap_err();
        assert_eq!((error.code, error.bytes), (ErrorCode::OutOfMemory, 1 << 50));
        let address = device.malloc_async(pool, 512, Stream::DEFAULT).unwrap();
        device.free_async(address, Stream::DEFAULT).unwrap();
        let error = device.free_async(0x1234_5000, Stream::DEFAULT).unwrap_err();
        assert_eq!((error.code, error.address), (ErrorCode::InvalidValue, 0x1234_5000));
        device.destroy_memory_pool(pool).unwrap();
    });
}
