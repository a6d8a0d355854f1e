//! Memory given to others: file descriptors, pools, IPC handles.

use crate::program::{
    GRANULE, access, allocate, create, cu, event, map, passes, passes_alone, pool_properties,
    reserve, start, use_device, used_bytes, word_at, zeroed,
};
use cudarc::driver::sys::{CUipcMemHandle, CUmemAllocationHandleType_enum as Shared};
use std::ffi::c_void;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::ptr::null_mut;

const POSIX_FD: Shared = Shared::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

#[test]
fn a_descriptor_gives_the_same_memory_again() {
    passes("backing:true", || {
        let (handle, address, mut number) = (create(GRANULE), reserve(2 * GRANULE), -1i32);
        cu!(cuMemExportToShareableHandle((&raw mut number).cast(), handle, POSIX_FD, 0));
        assert!(number > 2);
        let mut imported = 0;
        let as_pointer = number as usize as *mut c_void;
        cu!(cuMemImportFromShareableHandle(&mut imported, as_pointer, POSIX_FD));
        assert_eq!(used_bytes(), GRANULE);
        for (index, handle) in [handle, imported].into_iter().enumerate() {
            let at = address + (index * GRANULE) as u64;
            map(at, GRANULE, handle, 0);
        }
        cu!(cuMemsetD32_v2(address, 77, 1));
        assert_eq!(word_at(address + GRANULE as u64), 77);
        cu!(cuMemUnmap(address + GRANULE as u64, GRANULE));
        cu!(cuMemRelease(handle));
        cu!(cuMemRelease(imported));
        // Only a mapping keeps the memory now; the descriptor still leads to it.
        cu!(cuMemImportFromShareableHandle(&mut imported, as_pointer, POSIX_FD));
        cu!(cuMemUnmap(address, GRANULE));
        cu!(cuMemRelease(imported));
        assert_eq!(used_bytes(), GRANULE, "the descriptor keeps it");
        // SAFETY: it is the program's to close.
        unsafe { libc::close(number) };
        assert_eq!(used_bytes(), 0);
        cu!(cuMemImportFromShareableHandle(&mut imported, 9999 as *mut c_void, POSIX_FD) =>
            CUDA_ERROR_INVALID_VALUE);
    });
}

/// `vectorAddMMAP`, a sample of NVIDIA's, does so.
#[test]
fn memory_of_one_device_is_mapped_for_another() {
    passes("backing:true,devices:2", || {
        let (handle, number) = (create(2 * GRANULE), export(create(GRANULE)));
        use_device(1);
        let mut imported = 0;
        cu!(cuMemImportFromShareableHandle(&mut imported, number, POSIX_FD));
        let address = reserve(3 * GRANULE);
        let behind = address + 2 * GRANULE as u64;
        cu!(cuMemMap(address, GRANULE, 0, handle, 0) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuMemMap(address, 2 * GRANULE, 0, handle, 0));
        cu!(cuMemMap(behind, GRANULE, 0, imported, 0));
        cu!(cuMemSetAccess(address, 3 * GRANULE, &access(1), 1));
        assert_eq!(used_bytes(), 0, "it is the other's memory");
        cu!(cuMemsetD32_v2(address, 77, 1));
        let mut again = 0;
        cu!(cuMemRetainAllocationHandle(&mut again, address as *mut c_void));
        assert_eq!(again, handle);
        cu!(cuMemRelease(again));
        cu!(cuMemRelease(handle));
        cu!(cuMemRetainAllocationHandle(&mut again, address as *mut c_void));
        use_device(0);
        assert_eq!(used_bytes(), 3 * GRANULE);
        assert_eq!(word_at(show(again, 2 * GRANULE)), 77);
    });
}

#[test]
fn memory_is_not_opened_to_a_device_that_cannot_reach_it() {
    passes("profile:mig,devices:2", || {
        let (handle, mut can) = (create(GRANULE), 1);
        cu!(cuDeviceCanAccessPeer(&mut can, 1, 0));
        assert_eq!(can, 0);
        use_device(1);
        let address = reserve(GRANULE);
        cu!(cuMemMap(address, GRANULE, 0, handle, 0));
        cu!(cuMemSetAccess(address, GRANULE, &access(1), 1) => CUDA_ERROR_INVALID_DEVICE);
        cu!(cuMemUnmap(address, GRANULE));
        use_device(0);
        let address = show(handle, GRANULE);
        cu!(cuMemSetAccess(address, GRANULE, &access(1), 1) => CUDA_ERROR_INVALID_DEVICE);
        cu!(cuMemUnmap(address, GRANULE));
        cu!(cuMemRelease(handle));
        assert_eq!(used_bytes(), 0);
        let mut pool = null_mut();
        cu!(cuDeviceGetDefaultMemPool(&mut pool, 0));
        cu!(cuMemPoolSetAccess(pool, &access(1), 1) => CUDA_ERROR_INVALID_DEVICE);
        cu!(cuMemPoolSetAccess(pool, &access(0), 1));
    });
}

/// The number of a descriptor, as imports have it.
fn export(handle: u64) -> *mut c_void {
    let mut number = -1i32;
    cu!(cuMemExportToShareableHandle((&raw mut number).cast(), handle, POSIX_FD, 0));
    number as usize as *mut c_void
}

/// Maps memory of a handle at fresh addresses.
fn show(handle: u64, bytes: usize) -> u64 {
    let address = reserve(bytes);
    map(address, bytes, handle, 0);
    address
}

/// What another process does with the descriptor of this one whose number it reads.
fn answer(mut numbers: PipeReader) {
    let mut number = [0; 4];
    numbers.read_exact(&mut number).unwrap();
    // SAFETY: has no conditions.
    let parent = unsafe { libc::getppid() };
    // SAFETY: opens the process that this one was forked from.
    let parent = unsafe { libc::syscall(libc::SYS_pidfd_open, parent, 0) };
    // SAFETY: asks for a descriptor of that process.
    let own =
        unsafe { libc::syscall(libc::SYS_pidfd_getfd, parent, i32::from_ne_bytes(number), 0) };
    assert!(own > 2);
    start();
    let mut handle = 0;
    cu!(cuMemImportFromShareableHandle(&mut handle, own as usize as *mut c_void, POSIX_FD));
    let address = show(handle, GRANULE);
    assert_eq!(used_bytes(), GRANULE, "of a device of its own, or once of a shared one");
    assert_eq!(word_at(address), 77);
    cu!(cuMemsetD32_v2(address, 78, 1));
}

#[test]
fn memory_of_another_process_is_the_same_memory() {
    passes_alone("backing:true", || {
        send_and_look();
    });
}

#[test]
fn memory_of_two_processes_counts_once_on_a_device_that_they_share() {
    let folder = tempfile::tempdir().unwrap();
    let conf = format!("backing:true,shared:{}", folder.path().join("device").display());
    passes_alone(&conf, || {
        send_and_look();
    });
}

fn send_and_look() {
    with_child(answer, |mut writer| {
        start();
        let (handle, mut number) = (create(GRANULE), -1i32);
        let address = show(handle, GRANULE);
        cu!(cuMemsetD32_v2(address, 77, 1));
        cu!(cuMemExportToShareableHandle((&raw mut number).cast(), handle, POSIX_FD, 0));
        writer.write_all(&number.to_ne_bytes()).unwrap();
        address
    });
}

/// Sends something to a child, which finds 77 there and leaves 78.
fn with_child(child: fn(PipeReader), parent: fn(PipeWriter) -> u64) {
    let (reader, writer) = std::io::pipe().unwrap();
    // SAFETY: the driver is not in use yet; the child makes its own.
    let forked = unsafe { libc::fork() };
    if forked == 0 {
        drop(writer);
        let is_done = std::panic::catch_unwind(|| child(reader)).is_ok();
        // SAFETY: ends the child without what its parent has registered.
        unsafe { libc::_exit(i32::from(!is_done)) };
    }
    let (address, mut status) = (parent(writer), -1);
    // SAFETY: waits for the child, whose status it writes.
    unsafe { libc::waitpid(forked, &raw mut status, 0) };
    assert_eq!((status, word_at(address)), (0, 78));
}

#[test]
fn memory_opened_by_an_ipc_handle_is_the_same_memory() {
    fn open(mut handles: PipeReader) {
        let (mut bytes, mut opened) = ([0; 64], 0);
        handles.read_exact(&mut bytes).unwrap();
        start();
        // SAFETY: a handle is its bytes.
        let handle = unsafe { std::mem::transmute::<[u8; 64], CUipcMemHandle>(bytes) };
        cu!(cuIpcOpenMemHandle_v2(&mut opened, handle, 1));
        assert_eq!(word_at(opened), 77);
        cu!(cuMemsetD32_v2(opened, 78, 1));
        cu!(cuIpcCloseMemHandle(opened));
    }
    passes_alone("backing:true", || {
        with_child(open, |mut writer| {
            start();
            let (near, address, mut handle) = (allocate(512), allocate(512), zeroed());
            cu!(cuMemsetD32_v2(address, 77, 1));
            cu!(cuIpcGetMemHandle(&mut handle, address));
            cu!(cuIpcGetMemHandle(&mut zeroed(), near) => CUDA_ERROR_NOT_SUPPORTED);
            // SAFETY: a handle is its bytes.
            writer
                .write_all(&unsafe { std::mem::transmute::<CUipcMemHandle, [u8; 64]>(handle) })
                .unwrap();
            address
        });
    });
}

#[test]
fn a_pool_and_its_pointers_are_exported() {
    passes("", || {
        let mut wanted = pool_properties();
        let (mut plain, mut pool, mut imported) = (null_mut(), null_mut(), null_mut());
        cu!(cuMemPoolCreate(&mut plain, &wanted));
        wanted.handleTypes = POSIX_FD;
        cu!(cuMemPoolCreate(&mut pool, &wanted));
        let mut number = -1i32;
        let place = (&raw mut number).cast::<c_void>();
        cu!(cuMemPoolExportToShareableHandle(place, plain, POSIX_FD, 0) =>
            CUDA_ERROR_INVALID_VALUE);
        cu!(cuMemPoolExportToShareableHandle(place, pool, POSIX_FD, 0));
        let as_pointer = number as usize as *mut c_void;
        cu!(cuMemPoolImportFromShareableHandle(&mut imported, as_pointer, POSIX_FD, 0));
        assert_eq!(imported, pool);
        let (mut address, mut again) = (0, 0);
        cu!(cuMemAllocFromPoolAsync(&mut address, 512, pool, null_mut()));
        let mut data = zeroed();
        cu!(cuMemPoolExportPointer(&mut data, address));
        cu!(cuMemPoolImportPointer(&mut again, imported, &mut data));
        assert_eq!(again, address);
        cu!(cuMemPoolImportPointer(&mut again, plain, &mut data) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuMemAllocFromPoolAsync(&mut address, 512, plain, null_mut()));
        cu!(cuMemPoolExportPointer(&mut data, address) => CUDA_ERROR_INVALID_VALUE);
    });
}

#[test]
fn ipc_handles_are_counted() {
    passes("", || {
        let address = allocate(4096);
        let (mut handle, mut opened) = (zeroed(), 0);
        cu!(cuIpcOpenMemHandle_v2(&mut opened, handle, 1) => CUDA_ERROR_INVALID_HANDLE);
        cu!(cuIpcGetMemHandle(&mut handle, address));
        cu!(cuIpcOpenMemHandle_v2(&mut opened, handle, 0) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuIpcOpenMemHandle_v2(&mut opened, handle, 1));
        cu!(cuIpcOpenMemHandle_v2(&mut opened, handle, 1));
        assert_eq!(opened, address);
        cu!(cuIpcCloseMemHandle(opened));
        cu!(cuIpcCloseMemHandle(opened));
        cu!(cuIpcCloseMemHandle(opened) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuIpcGetMemHandle(&mut handle, reserve(GRANULE)) => CUDA_ERROR_INVALID_VALUE);
        let mut handle = zeroed();
        cu!(cuIpcGetEventHandle(&mut handle, event(6)));
        cu!(cuIpcGetEventHandle(&mut handle, event(2)) => CUDA_ERROR_INVALID_HANDLE);
    });
}
