//! What a runtime adds to the driver: first use, the device of a thread, errors, kernels, symbols.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::LazyLock;
use std::thread;

use crate::library::{Runtime, function};

static RUNTIME: LazyLock<Option<Runtime>> = LazyLock::new(|| Runtime::load("13"));

const INVALID_VALUE: c_int = 1;
const INVALID_DEVICE: c_int = 101;

/// Runs a test in a thread of its own, which has done nothing yet.
fn in_fresh_thread(test: fn(&'static Runtime)) {
    if let Some(runtime) = &*RUNTIME {
        thread::spawn(move || test(runtime)).join().unwrap();
    }
}

#[test]
fn memory_is_taken_on_first_use_and_given_back() {
    in_fresh_thread(|runtime| {
        let malloc = function!(runtime.cudaMalloc(*mut *mut c_void, usize));
        let free = function!(runtime.cudaFree(*mut c_void));
        let mut address = ptr::null_mut();
        assert_eq!(malloc(&raw mut address, 1 << 20), 0);
        assert!(!address.is_null());
        assert_eq!(free(address), 0);
        assert_ne!(free(address), 0, "given back twice");
        assert_ne!(runtime.call(c"cudaGetLastError"), 0);
        assert_eq!(free(ptr::null_mut()), 0);
        // Nothing of size zero is an address.
        assert_eq!(malloc(&raw mut address, 0), 0);
        assert!(address.is_null());
        assert_eq!(malloc(ptr::null_mut(), 16), INVALID_VALUE);
        assert_eq!(malloc(&raw mut address, usize::MAX / 2), 2);
        assert_eq!(runtime.call(c"cudaGetLastError"), 2);
    });
}

#[test]
fn the_last_error_is_the_threads_own_and_is_told_once() {
    in_fresh_thread(|runtime| {
        let set = function!(runtime.cudaSetDevice(c_int));
        assert_eq!(set(99), INVALID_DEVICE);
        assert_eq!(set(-1), INVALID_DEVICE);
        let other = thread::spawn(move || runtime.call(c"cudaPeekAtLastError"));
        assert_eq!(other.join().unwrap(), 0);
        assert_eq!(set(0), 0, "a call that succeeds clears nothing");
        assert_eq!(runtime.call(c"cudaPeekAtLastError"), INVALID_DEVICE);
        assert_eq!(runtime.call(c"cudaGetLastError"), INVALID_DEVICE);
        assert_eq!(runtime.call(c"cudaGetLastError"), 0);
        assert_eq!(runtime.number(c"cudaGetDevice"), 0);
    });
}

#[test]
fn errors_have_names_and_texts() {
    in_fresh_thread(|runtime| {
        type Text = extern "C" fn(c_int) -> *const c_char;
        let text = |function: &CStr, status| {
            let text: Text = runtime.function(function);
            // SAFETY: both functions give strings that stay.
            unsafe { CStr::from_ptr(text(status)) }.to_str().unwrap()
        };
        assert_eq!(text(c"cudaGetErrorName", 2), "cudaErrorMemoryAllocation");
        assert_eq!(text(c"cudaGetErrorString", 700), "an illegal memory access was encountered");
        assert_eq!(text(c"cudaGetErrorString", -7), "unrecognized error code");
    });
}

/// A grid or a block.
#[repr(C)]
#[derive(Clone, Copy)]
struct Dimensions(c_uint, c_uint, c_uint);

static KERNEL: c_int = 0;

#[test]
fn a_kernel_is_launched_once_it_is_registered_and_fits() {
    in_fresh_thread(|runtime| {
        let launch = function!(runtime.cudaLaunchKernel(
            *const c_void, Dimensions, Dimensions, *mut *mut c_void, usize, *mut c_void
        ));
        let kernel = (&raw const KERNEL).cast();
        let launch = |grid, block, shared_bytes| {
            let (grid, block) = (Dimensions(grid, 1, 1), Dimensions(block, 1, 1));
            launch(kernel, grid, block, ptr::null_mut(), shared_bytes, ptr::null_mut())
        };
        assert_eq!(launch(1, 32, 0), 98, "not registered");
        let register = function!(runtime.__cudaRegisterFunction(
            *mut *mut c_void, *const c_void, *mut c_char, *const c_char, c_int,
            *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_int
        ) -> ());
        let (none, no_name) = (ptr::null_mut(), ptr::null_mut());
        let name = c"kernel".as_ptr();
        let binary = ptr::null_mut();
        register(binary, kernel, no_name, name, -1, none, none, none, none, ptr::null_mut());
        assert_eq!(launch(1, 32, 0), 0);
        assert_eq!(launch(0, 32, 0), 9, "an empty grid");
        assert_eq!(launch(1, 2048, 0), 9, "too many threads");
        assert_eq!(launch(1, 32, 1 << 20), INVALID_VALUE, "too much shared memory");
        assert_eq!(runtime.call(c"cudaDeviceSynchronize"), 0);
    });
}

#[test]
fn a_call_configuration_is_taken_back_as_it_was_given() {
    in_fresh_thread(|runtime| {
        let push = function!(runtime.__cudaPushCallConfiguration(
            Dimensions, Dimensions, usize, *mut c_void
        ));
        let pop = function!(runtime.__cudaPopCallConfiguration(
            *mut Dimensions, *mut Dimensions, *mut usize, *mut *mut c_void
        ));
        let (mut grid, mut block) = (Dimensions(0, 0, 0), Dimensions(0, 0, 0));
        let (mut shared_bytes, mut stream) = (0, ptr::null_mut());
        let stream_given = ptr::without_provenance_mut(1);
        assert_eq!(push(Dimensions(1, 2, 3), Dimensions(4, 5, 6), 7, stream_given), 0);
        let mut pop = || pop(&raw mut grid, &raw mut block, &raw mut shared_bytes, &raw mut stream);
        assert_eq!(pop(), 0);
        assert_eq!(pop(), 52, "there is none any more");
        assert_eq!((grid.0, grid.1, grid.2), (1, 2, 3));
        assert_eq!((block.0, block.1, block.2), (4, 5, 6));
        assert_eq!((shared_bytes, stream), (7, stream_given));
    });
}

static SYMBOL: c_int = 0;

#[test]
fn a_symbol_keeps_what_is_copied_to_it() {
    in_fresh_thread(|runtime| {
        let symbol = (&raw const SYMBOL).cast();
        let to = function!(runtime.cudaMemcpyToSymbol(
            *const c_void, *const c_void, usize, usize, c_int
        ));
        let from = function!(runtime.cudaMemcpyFromSymbol(
            *mut c_void, *const c_void, usize, usize, c_int
        ));
        let given = [1_u8, 2, 3, 4];
        let mut taken = [0_u8; 4];
        assert_eq!(to(symbol, given.as_ptr().cast(), 4, 0, 1), 13, "not registered");
        let register = function!(runtime.__cudaRegisterVar(
            *mut *mut c_void, *const c_void, *mut c_char, *const c_char, c_int, usize, c_int, c_int
        ) -> ());
        register(ptr::null_mut(), symbol, ptr::null_mut(), c"symbol".as_ptr(), 0, 8, 0, 0);
        assert_eq!(to(symbol, given.as_ptr().cast(), 4, 4, 1), 0);
        assert_eq!(to(symbol, given.as_ptr().cast(), 4, 5, 1), INVALID_VALUE, "past its end");
        assert_eq!(from(taken.as_mut_ptr().cast(), symbol, 4, 4, 2), 0);
        assert_eq!(taken, given);
    });
}

#[test]
fn a_copy_states_a_direction_that_exists() {
    in_fresh_thread(|runtime| {
        let copy = function!(runtime.cudaMemcpy(*mut c_void, *const c_void, usize, c_int));
        let (from, mut to) = ([7_u8; 16], [0_u8; 16]);
        assert_eq!(copy(to.as_mut_ptr().cast(), from.as_ptr().cast(), 16, 9), 21);
        assert_eq!(copy(to.as_mut_ptr().cast(), from.as_ptr().cast(), 16, 0), 0);
        assert_eq!(to, from);
    });
}

#[test]
fn an_address_is_told_apart() {
    #[repr(C)]
    struct Attributes {
        kind: c_int,
        device: c_int,
        device_address: *mut c_void,
        host_address: *mut c_void,
        reserved: [u64; 8],
    }
    in_fresh_thread(|runtime| {
        let get = function!(runtime.cudaPointerGetAttributes(*mut Attributes, *const c_void));
        let ask = |address: *mut c_void| {
            let (device_address, host_address) = (ptr::null_mut(), ptr::null_mut());
            let (kind, device, reserved) = (-1, -1, [3; 8]);
            let mut told = Attributes { kind, device, device_address, host_address, reserved };
            assert_eq!(get(&raw mut told, address), 0);
            assert_eq!(told.reserved, [3; 8], "room that CUDA 12 does not give");
            (told.kind, told.device, told.device_address, told.host_address)
        };
        let malloc = function!(runtime.cudaMalloc(*mut *mut c_void, usize));
        let host = function!(runtime.cudaMallocHost(*mut *mut c_void, usize));
        let (mut device, mut pinned) = (ptr::null_mut(), ptr::null_mut());
        assert_eq!(malloc(&raw mut device, 4096), 0);
        assert_eq!(host(&raw mut pinned, 4096), 0);
        assert_eq!(ask(device), (2, 0, device, ptr::null_mut()));
        assert_eq!(ask(pinned), (1, 0, pinned, pinned));
        let mut own = 0;
        let own = (&raw mut own).cast();
        assert_eq!(ask(own), (0, -2, ptr::null_mut(), own));
        let free = function!(runtime.cudaFree(*mut c_void));
        let free_host = function!(runtime.cudaFreeHost(*mut c_void));
        assert_eq!((free(device), free_host(pinned)), (0, 0));
    });
}

#[test]
fn what_is_not_there_refuses_and_harms_nothing() {
    in_fresh_thread(|runtime| {
        assert_eq!(runtime.call(c"cudaCreateTextureObject"), 801);
        assert_eq!(runtime.call(c"cudaGetLastError"), 801);
        assert_eq!(runtime.call(c"cudaDeviceSynchronize"), 0);
    });
}

#[test]
fn a_function_of_the_driver_is_found_by_name() {
    in_fresh_thread(|runtime| {
        let find = function!(runtime.cudaGetDriverEntryPointByVersion(
            *const c_char, *mut *mut c_void, c_uint, u64, *mut c_int
        ));
        let find = |name: &CStr, told: *mut c_int| {
            let mut function = ptr::null_mut();
            let status = find(name.as_ptr(), &raw mut function, 12_000, 0, told);
            (status, function.is_null())
        };
        let mut told = -1;
        assert_eq!(find(c"cuMemCreate", &raw mut told), (0, false));
        assert_eq!(told, 0);
        assert_eq!(find(c"cuNoSuchThing", &raw mut told), (0, true));
        assert_eq!(told, 1);
        assert_eq!(find(c"cuNoSuchThing", ptr::null_mut()), (500, true));
    });
}
