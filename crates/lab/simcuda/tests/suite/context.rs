//! Initialisation, devices, contexts, names of functions.

use crate::program::{allocate, cu, passes, passes_alone, told_of, use_device};
use cudarc::driver::sys::{self, CUdevice_attribute_enum as Attribute};
use std::ffi::CStr;
use std::ptr::null_mut;

const ORDINAL: sys::CUpointer_attribute =
    sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;

#[test]
fn nothing_goes_before_init() {
    passes_alone("", || {
        let mut number = 0;
        cu!(cuDriverGetVersion(&mut number));
        assert_eq!(number, 13000);
        cu!(cuDeviceGetCount(&mut number) => CUDA_ERROR_NOT_INITIALIZED);
        cu!(cuInit(1) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuInit(0));
        cu!(cuDeviceGetCount(&mut number));
        assert_eq!(number, 1);
    });
}

#[test]
fn a_setting_that_cannot_be_stops_init() {
    passes_alone("memroy:1GiB", || {
        cu!(cuInit(0) => CUDA_ERROR_SYSTEM_NOT_READY);
    });
}

#[test]
fn a_device_is_what_the_settings_say() {
    let conf = "memory:3GiB,compute:8.6,driver:12080,vmm:false,devices:2";
    passes_alone(conf, || {
        cu!(cuInit(0));
        let (mut bytes, mut value) = (0, 0);
        cu!(cuDeviceTotalMem_v2(&mut bytes, 1));
        assert_eq!(bytes, 3 << 30);
        for (attribute, expected) in [
            (Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 8),
            (Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 6),
            (Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0),
            (Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1),
            (Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32),
        ] {
            cu!(cuDeviceGetAttribute(&mut value, attribute, 1));
            assert_eq!(value, expected, "{attribute:?}");
        }
        let mut name = [1; 12];
        cu!(cuDeviceGetName(name.as_mut_ptr(), 12, 0));
        // SAFETY: the driver has written a C string.
        assert_eq!(unsafe { CStr::from_ptr(name.as_ptr()) }.to_str().unwrap(), "Drystone Si");
        cu!(cuDeviceGetName(name.as_mut_ptr(), 0, 0) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuDeviceTotalMem_v2(&mut bytes, 2) => CUDA_ERROR_INVALID_DEVICE);
        cu!(cuDeviceTotalMem_v2(null_mut(), 0) => CUDA_ERROR_INVALID_VALUE);
    });
}

#[test]
fn each_thread_has_its_own_current_context() {
    let conf = "devices:2,stale_handles_end:false";
    passes_alone(conf, || {
        cu!(cuInit(0));
        let mut address = 0;
        cu!(cuMemAlloc_v2(&mut address, 512) => CUDA_ERROR_INVALID_CONTEXT);
        let (first, second) = (use_device(0), use_device(1));
        let mut current = null_mut();
        cu!(cuCtxGetCurrent(&mut current));
        assert_eq!(current, second);
        cu!(cuCtxPushCurrent_v2(first));
        let mut device = 9;
        cu!(cuCtxGetDevice(&mut device));
        assert_eq!(device, 0);
        std::thread::spawn(|| {
            cu!(cuMemAlloc_v2(&mut 0, 512) => CUDA_ERROR_INVALID_CONTEXT);
            cu!(cuCtxPopCurrent_v2(null_mut()) => CUDA_ERROR_INVALID_CONTEXT);
        })
        .join()
        .unwrap();
        cu!(cuCtxPopCurrent_v2(&mut current));
        assert_eq!(current, first);
        cu!(cuCtxGetDevice(&mut device));
        assert_eq!(device, 1);
        cu!(cuDevicePrimaryCtxRelease_v2(1));
        cu!(cuMemAlloc_v2(&mut address, 512) => CUDA_ERROR_CONTEXT_IS_DESTROYED);
        cu!(cuDevicePrimaryCtxRelease_v2(1) => CUDA_ERROR_INVALID_CONTEXT);
        cu!(cuCtxSetCurrent(0x1234 as sys::CUcontext) => CUDA_ERROR_INVALID_CONTEXT);
        cu!(cuCtxSetCurrent(null_mut()));
        cu!(cuCtxGetCurrent(&mut current));
        assert!(current.is_null());
    });
}

#[test]
fn addresses_of_two_devices_differ_and_peers_are_enabled_once() {
    passes_alone("devices:2", || {
        cu!(cuInit(0));
        let first = use_device(0);
        let here = allocate(512);
        use_device(1);
        let there = allocate(512);
        assert_ne!(here, there);
        assert_eq!(told_of::<i32>(there, ORDINAL), 1);
        cu!(cuCtxEnablePeerAccess(first, 0));
        cu!(cuCtxEnablePeerAccess(first, 0) => CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        cu!(cuCtxDisablePeerAccess(first));
        cu!(cuCtxDisablePeerAccess(first) => CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        cu!(cuMemFree_v2(here));
        cu!(cuMemFree_v2(there));
    });
}

#[test]
fn names_lead_to_functions() {
    passes("debug:true", || {
        let mut function = null_mut();
        let mut status =
            sys::CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        let name = c"cuMemGetInfo".as_ptr();
        cu!(cuGetProcAddress_v2(name, &mut function, 13000, 0, &mut status));
        // SAFETY: that is the function's signature.
        let info: unsafe extern "C" fn(*mut usize, *mut usize) -> i32 =
            unsafe { std::mem::transmute(function) };
        let mut total = 0;
        // SAFETY: a null place is one that is not wanted.
        assert_eq!(unsafe { info(null_mut(), &mut total) }, 0);
        assert_eq!(total, 80 << 30);
        let name = c"cuTeleport".as_ptr();
        cu!(cuGetProcAddress_v2(name, &mut function, 13000, 0, &mut status));
        assert!(function.is_null());
        assert_eq!(status as i32, 1);
        cu!(cuGetProcAddress_v2(name, &mut function, 13000, 0, null_mut()) => CUDA_ERROR_NOT_FOUND);
    });
}

#[test]
fn a_program_sees_the_devices_that_it_names_in_its_order() {
    passes_alone("devices:4", || {
        // SAFETY: no other thread of this program reads or changes the environment.
        unsafe { std::env::set_var("CUDA_VISIBLE_DEVICES", "2,1,7,0") };
        cu!(cuInit(0));
        let mut count = 0;
        cu!(cuDeviceGetCount(&mut count));
        assert_eq!(count, 2);
        cu!(cuDeviceGet(&mut 0, 2) => CUDA_ERROR_INVALID_DEVICE);
        let mut bus = [0; 2];
        let mut unique = [sys::CUuuid { bytes: [0; 16] }; 2];
        for ordinal in 0..2 {
            let attribute = Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID;
            cu!(cuDeviceGetAttribute(&mut bus[ordinal], attribute, ordinal as i32));
            cu!(cuDeviceGetUuid_v2(&mut unique[ordinal], ordinal as i32));
        }
        assert_eq!(bus, [3, 2]);
        assert_eq!(unique.map(|one| one.bytes[15]), [2, 1]);
        let mut found = 9;
        cu!(cuDeviceGetByPCIBusId(&mut found, c"0000:02:00.0".as_ptr()));
        assert_eq!(found, 1);
        cu!(cuDeviceGetByPCIBusId(&mut found, c"0000:01:00.0".as_ptr())
            => CUDA_ERROR_INVALID_DEVICE);
        let first = use_device(0);
        let here = allocate(512);
        use_device(1);
        assert_eq!(told_of::<i32>(here, ORDINAL), 0);
        cu!(cuCtxEnablePeerAccess(first, 0));
        cu!(cuMemFree_v2(here));
    });
}

#[test]
fn a_program_may_hide_every_device() {
    passes_alone("", || {
        // SAFETY: no other thread of this program reads or changes the environment.
        unsafe { std::env::set_var("CUDA_VISIBLE_DEVICES", "") };
        cu!(cuInit(0) => CUDA_ERROR_NO_DEVICE);
    });
}

#[test]
fn what_the_driver_makes_for_itself_takes_room() {
    let conf = "memory:128MiB,driver_room:64MiB";
    passes_alone(conf, || {
        cu!(cuInit(0));
        use_device(0);
        let (mut address, mut stream, mut event) = (0, null_mut(), null_mut());
        cu!(cuMemAlloc_v2(&mut address, 65 << 20));
        cu!(cuStreamCreate(&mut stream, 1) => CUDA_ERROR_OUT_OF_MEMORY);
        cu!(cuEventCreate(&mut event, 0) => CUDA_ERROR_OUT_OF_MEMORY);
        cu!(cuMemFree_v2(address));
        cu!(cuStreamCreate(&mut stream, 1));
        cu!(cuEventCreate(&mut event, 0));
    });
}
