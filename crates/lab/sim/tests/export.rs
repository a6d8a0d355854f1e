//! Memory that other processes know by a descriptor.

use drystone_driver::{Call, Driver, ErrorCode};
use drystone_sim::{GRANULARITY_BYTES as G, Harsh, SimConfig, SimDevice};

#[test]
fn memory_that_only_a_descriptor_keeps_is_not_free_and_can_be_had_again() {
    let device = SimDevice::new(SimConfig { total_bytes: 4 * G, ..SimConfig::default() });
    let handle = device.create(4 * G).unwrap();
    let descriptor = device.export(handle).unwrap();
    device.release(handle).unwrap();
    assert_eq!(device.memory_info().unwrap().free_bytes, 0);
    assert!(device.create(G).unwrap_err().is_out_of_memory());
    assert!(device.malloc(512).unwrap_err().is_out_of_memory());
    let again = device.import(&descriptor).unwrap();
    assert_eq!(device.export(again).unwrap_err().code, ErrorCode::NotSupported);
    drop(descriptor);
    assert_eq!(device.memory_info().unwrap().free_bytes, 0);
    device.release(again).unwrap();
    assert_eq!(device.memory_info().unwrap().free_bytes, 4 * G);
    assert!(device.live_objects().is_empty());
}

#[test]
fn memory_of_another_process_takes_room_here_too() {
    let devices = [(); 2].map(|()| SimDevice::new(SimConfig::default()));
    let handle = devices[0].create(2 * G).unwrap();
    let descriptor = devices[0].export(handle).unwrap();
    let imported = devices[1].import(&descriptor).unwrap();
    let same = [devices[0].file_of(handle), devices[1].file_of(imported)];
    let [first, second] = same.map(|file| file.unwrap().identity());
    assert_eq!(first, second);
    assert_eq!(devices[1].physical_bytes(), 2 * G);
    devices[1].release(imported).unwrap();
    assert_eq!(devices[1].physical_bytes(), 0, "the maker keeps it");
    drop(descriptor);
    devices[0].release(handle).unwrap();
    assert_eq!(devices.map(|device| device.physical_bytes()), [0, 0]);
}

#[test]
fn what_cannot_be_shared_is_refused() {
    let device = SimDevice::new(SimConfig { is_shareable: false, ..SimConfig::default() });
    let handle = device.create(G).unwrap();
    let refused = device.export(handle).unwrap_err();
    assert_eq!((refused.call, refused.code), (Call::Export, ErrorCode::NotSupported));
    let other = std::fs::File::open("/dev/null").unwrap().into();
    let refused = device.import(&other).unwrap_err();
    assert_eq!((refused.call, refused.code), (Call::Import, ErrorCode::NotSupported));
    let harsh = Harsh { stale_handles_end: false, ..Harsh::default() };
    let device = SimDevice::new(SimConfig { harsh, ..SimConfig::default() });
    let handle = device.create(G).unwrap();
    device.release(handle).unwrap();
    assert_eq!(device.export(handle).unwrap_err().code, ErrorCode::InvalidHandle);
    assert_eq!(device.import(&other).unwrap_err().code, ErrorCode::InvalidValue);
}

#[test]
fn memory_behind_addresses_of_another_device_stays_the_first_ones() {
    let [owner, other] = [0, 1].map(|ordinal| {
        SimDevice::new(SimConfig {
            ordinal,
            first_address: (1 + u64::from(ordinal)) << 40,
            ..SimConfig::default()
        })
    });
    let handle = owner.create(2 * G).unwrap();
    let (more, bytes) = owner.one_more_handle(handle).unwrap();
    let foreign = other.foreign_handle(bytes).unwrap();
    let address = other.reserve(2 * G, 0).unwrap();
    other.map(address, 2 * G, foreign).unwrap();
    other.give_up_handle(foreign).unwrap();
    owner.release(handle).unwrap();
    assert_eq!([&owner, &other].map(SimDevice::physical_bytes), [2 * G, 0]);
    other.unmap(address, 2 * G).unwrap();
    owner.give_up_handle(more).unwrap();
    assert_eq!([&owner, &other].map(SimDevice::physical_bytes), [0, 0]);
    assert_eq!(owner.one_more_handle(handle), Err(ErrorCode::InvalidHandle));
    other.unreserve(address, 2 * G).unwrap();
    assert!(other.live_objects().is_empty());
}
