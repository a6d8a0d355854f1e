//! Devices that reach each other's memory.

use drystone_driver::{Driver, ErrorCode, MemoryPoolConfig};

use crate::raw;
use crate::scenario::open_at;

#[test]
fn a_peer_reaches_mapped_memory_at_its_next_set_access_and_pools_from_now_on() {
    crate::scenario!(2, "", || {
        let device = open_at(0);
        let granule = device.info().granularity_bytes;
        let address = device.reserve(granule, 0).unwrap();
        let handle = device.create(granule).unwrap();
        device.map(address, granule, handle).unwrap();
        device.set_access(address, granule).unwrap();
        let older = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
        assert_eq!((raw::mapped_access(address, 0), raw::mapped_access(address, 1)), (3, 0));
        assert_eq!(raw::pool_access(older.0, 1), 0);

        match device.enable_peer_access(1) {
            Err(error) if error.code == ErrorCode::NotSupported => {
                println!("these devices are not connected");
                return;
            }
            done => done.unwrap(),
        }
        device.enable_peer_access(1).unwrap();
        device.set_access(address, granule).unwrap();
        assert_eq!((raw::mapped_access(address, 0), raw::mapped_access(address, 1)), (3, 3));
        assert_eq!(raw::pool_access(older.0, 1), 3);
        let newer = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
        assert_eq!(raw::pool_access(newer.0, 1), 3);
        assert_eq!(raw::current(), 0);

        // One way only: the peer's own memory is as closed as before.
        let peer = open_at(1);
        let pool = peer.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
        assert_eq!(raw::pool_access(pool.0, 0), 0);
        peer.destroy_memory_pool(pool).unwrap();
        device.destroy_memory_pool(older).unwrap();
        device.destroy_memory_pool(newer).unwrap();
        device.unmap(address, granule).unwrap();
        device.release(handle).unwrap();
        device.unreserve(address, granule).unwrap();
    });
}

#[test]
fn a_device_is_no_peer_of_itself_nor_of_one_that_does_not_exist() {
    crate::scenario!(1, "", || {
        let device = open_at(0);
        for peer in [0, 64, u32::MAX] {
            let error = device.enable_peer_access(peer).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidValue, "{peer}");
        }
    });
}
