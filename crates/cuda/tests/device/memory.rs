//! Plain and mapped memory.

use drystone_cuda::{CudaDevice, CudaOptions, OpenError, device_count};
use drystone_driver::{Driver, ErrorCode, Handle, ShareableHandle};

use crate::raw;
use crate::scenario::{open, open_at};

#[test]
fn info_says_what_the_device_is_and_makes_no_call() {
    crate::scenario!(1, "", || {
        let device = open();
        let info = device.info();
        assert_eq!(info.ordinal, 0);
        assert!(info.total_bytes >= 1 << 30);
        assert!(info.granularity_bytes.is_power_of_two());
        // A virtual GPU has neither.
        assert_eq!(info.has_virtual_memory, info.has_async_malloc);
        let memory = device.memory_info().unwrap();
        assert!(memory.free_bytes <= memory.total_bytes);
        assert!(memory.total_bytes <= info.total_bytes);
    });
}

#[test]
fn a_device_that_does_not_exist_is_refused_with_how_many_there_are() {
    crate::scenario!(1, "", || {
        let count = device_count().unwrap();
        let error = CudaDevice::open(count, &CudaOptions::default()).unwrap_err();
        assert_eq!(error, OpenError::NoSuchDevice { ordinal: count, count });
    });
}

#[test]
fn plain_memory_holds_what_is_written_and_comes_back() {
    crate::scenario!(1, "", || {
        let device = open();
        raw::set_current(raw::primary(0));
        let before = raw::free_bytes();
        let address = device.malloc(256 << 20).unwrap();
        assert_eq!(address % 256, 0);
        raw::assert_taken(before, 256 << 20);
        raw::write(address, b"drystone");
        assert_eq!(raw::read(address, 8), b"drystone");
        device.free(address).unwrap();
        raw::assert_taken(before, 0);
    });
}

#[test]
fn too_much_memory_is_refused_with_the_figures_and_cudas_name() {
    crate::scenario!(1, "", || {
        let device = open();
        let bytes = 1 << 50;
        let error = device.malloc(bytes).unwrap_err();
        assert_eq!(error.code, ErrorCode::OutOfMemory);
        let shown = format!("out of memory (CUDA_ERROR_OUT_OF_MEMORY, {bytes} bytes)");
        assert_eq!(error.to_string(), format!("cudaMalloc failed: {shown}"));
        // More than there ever was may be a wrong argument to a real driver.
        let error = device.create(bytes).unwrap_err();
        let codes = [ErrorCode::OutOfMemory, ErrorCode::InvalidValue];
        assert!(codes.contains(&error.code) && error.bytes == bytes, "{error}");
    });
}

#[test]
fn mapped_memory_holds_what_is_written_through_every_mapping() {
    crate::scenario!(1, "", || {
        let device = open();
        raw::set_current(raw::primary(0));
        let granule = device.info().granularity_bytes;
        let before = raw::free_bytes();
        let address = device.reserve(4 * granule, 0).unwrap();
        // Addresses cost nothing.
        raw::assert_taken(before, 0);
        let handle = device.create(granule).unwrap();
        raw::assert_taken(before, granule);
        device.map(address, granule, handle).unwrap();
        device.map(address + granule, granule, handle).unwrap();
        device.set_access(address, 2 * granule).unwrap();
        raw::write(address, b"granule");
        assert_eq!(raw::read(address + granule, 7), b"granule");
        assert_eq!(raw::mapped_access(address, 0), 3);
        device.unmap(address, 2 * granule).unwrap();
        device.release(handle).unwrap();
        raw::assert_taken(before, 0);
        device.unreserve(address, 4 * granule).unwrap();
    });
}

#[test]
fn a_released_handle_keeps_its_memory_while_it_is_mapped() {
    crate::scenario!(1, "", || {
        let device = open();
        raw::set_current(raw::primary(0));
        let granule = device.info().granularity_bytes;
        let before = raw::free_bytes();
        let address = device.reserve(granule, 0).unwrap();
        let handle = device.create(granule).unwrap();
        device.map(address, granule, handle).unwrap();
        device.set_access(address, granule).unwrap();
        device.release(handle).unwrap();
        raw::write(address, b"still here");
        assert_eq!(raw::read(address, 10), b"still here");
        device.unmap(address, granule).unwrap();
        raw::assert_taken(before, 0);
        device.unreserve(address, granule).unwrap();
    });
}

#[test]
fn refused_calls_name_call_code_and_figures() {
    crate::scenario!(1, "", || {
        let device = open();
        let granule = device.info().granularity_bytes;
        let address = device.reserve(granule, 0).unwrap();
        let handle = device.create(granule).unwrap();
        device.map(address, granule, handle).unwrap();
        let twice = device.map(address, granule, handle).unwrap_err();
        assert_eq!((twice.bytes, twice.address), (granule, address));
        assert!(twice.to_string().starts_with("cuMemMap failed: "), "{twice}");
        assert!(twice.to_string().contains("(CUDA_ERROR_"), "{twice}");
        device.unmap(address, granule).unwrap();
        let twice = device.unmap(address, granule).unwrap_err();
        assert_eq!((twice.code, twice.address), (ErrorCode::InvalidValue, address));
        device.release(handle).unwrap();
        assert!(device.release(Handle(0)).is_err());
        device.unreserve(address, granule).unwrap();
        let twice = device.unreserve(address, granule).unwrap_err();
        assert_eq!((twice.bytes, twice.address), (granule, address));
        let error = device.free(0x1234_5678).unwrap_err();
        assert_eq!((error.code, error.address), (ErrorCode::InvalidValue, 0x1234_5678));
    });
}

#[test]
fn shareable_memory_is_made_where_the_device_can_share_it() {
    crate::scenario!(1, "", || {
        let options = CudaOptions { is_shareable: Some(true) };
        let device = CudaDevice::open(0, &options).unwrap();
        let plain = CudaOptions { is_shareable: Some(false) };
        let plain = CudaDevice::open(0, &plain).unwrap();
        assert_eq!(device.info().shareable_handle, plain.info().shareable_handle);
        let handle = device.create(device.info().granularity_bytes).unwrap();
        assert_eq!(raw::requested_handle(handle.0) != 0, can_share(&device));
        device.release(handle).unwrap();
        let handle = plain.create(plain.info().granularity_bytes).unwrap();
        assert_eq!(raw::requested_handle(handle.0), 0);
        plain.release(handle).unwrap();
    });
}

#[test]
fn exported_memory_comes_back_by_its_descriptor() {
    crate::scenario!(1, "", || {
        let device = open_at(0);
        let granule = device.info().granularity_bytes;
        let handle = device.create(granule).unwrap();
        if !can_share(&device) {
            assert_eq!(device.export(handle).unwrap_err().code, ErrorCode::NotSupported);
            device.release(handle).unwrap();
            return;
        }
        let descriptor = device.export(handle).unwrap();
        let imported = device.import(&descriptor).unwrap();
        device.release(handle).unwrap();
        drop(descriptor);
        let address = device.reserve(granule, 0).unwrap();
        device.map(address, granule, imported).unwrap();
        device.set_access(address, granule).unwrap();
        device.unmap(address, granule).unwrap();
        device.release(imported).unwrap();
        device.unreserve(address, granule).unwrap();
        let plain = CudaOptions { is_shareable: Some(false) };
        let plain = CudaDevice::open(0, &plain).unwrap();
        let handle = plain.create(granule).unwrap();
        assert_eq!(plain.export(handle).unwrap_err().code, ErrorCode::NotSupported);
        plain.release(handle).unwrap();
    });
}

fn can_share(device: &CudaDevice) -> bool {
    device.info().shareable_handle != ShareableHandle::None
}
