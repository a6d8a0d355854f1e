//! Copies and memsets, with and without real memory behind device memory.

use crate::program::{GRANULE, allocate, create, cu, map, passes, reserve, reset, stream, word_at};
use cudarc::driver::sys;
use std::ptr::null_mut;

#[test]
fn what_is_copied_in_is_read_back_where_there_is_backing() {
    passes("backing:true", || {
        let (first, second, stream) = (allocate(1000), allocate(1000), stream());
        let sent: Vec<u8> = (0..1000).map(|index| index as u8).collect();
        let mut got = vec![0u8; 1000];
        cu!(cuMemcpyHtoD_v2(first, sent.as_ptr().cast(), 1000));
        cu!(cuMemcpyDtoDAsync_v2(second, first, 1000, stream));
        cu!(cuMemsetD8Async(second, 9, 10, stream));
        cu!(cuMemsetD32_v2(second + 12, 0x0403_0201, 2));
        cu!(cuMemcpyDtoH_v2(got.as_mut_ptr().cast(), second, 1000));
        assert_eq!((&got[..10], &got[10..12]), (&[9; 10][..], &sent[10..12]));
        assert_eq!((&got[12..20], &got[20..]), (&[1, 2, 3, 4, 1, 2, 3, 4][..], &sent[20..]));
        cu!(cuMemFree_v2(first));
        cu!(cuMemFree_v2(second));
    });
}

#[test]
fn two_mappings_of_one_handle_are_one_memory() {
    passes("backing:true", || {
        let (address, handle) = (reserve(2 * GRANULE), create(GRANULE));
        for at in [address, address + GRANULE as u64] {
            map(at, GRANULE, handle, 0);
        }
        cu!(cuMemRelease(handle));
        cu!(cuMemsetD32_v2(address + 4096, 0xabcd, 1));
        let other = address + GRANULE as u64 + 4096;
        assert_eq!(word_at(other), 0xabcd);
        cu!(cuMemUnmap(address, GRANULE));
        assert_eq!(word_at(other), 0xabcd);
        let mut number = 0u32;
        cu!(cuMemcpyDtoH_v2((&raw mut number).cast(), address, 4) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuMemUnmap(address + GRANULE as u64, GRANULE));
        // The same addresses with other memory: nothing of the old shows.
        map(address, 2 * GRANULE, create(2 * GRANULE), 0);
        assert_eq!(word_at(other), 0);
    });
}

#[test]
fn a_fresh_device_remembers_nothing() {
    let conf = "backing:true,stale_handles_end:false";
    passes(conf, || {
        let (device, stream) = (allocate(4096), stream());
        cu!(cuMemsetD32_v2(device, 9, 1024));
        reset();
        cu!(cuMemFree_v2(device) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuStreamQuery(stream) => CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(allocate(4096), device);
        assert_eq!(word_at(device), 0);
    });
}

#[test]
fn without_backing_device_memory_reads_as_zero() {
    passes("", || {
        let device = allocate(64);
        let mut host = [5u8; 64];
        cu!(cuMemcpyHtoD_v2(device, host.as_ptr().cast(), 64));
        cu!(cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), device, 64));
        assert_eq!(host, [0; 64]);
        let other = [3u8; 64];
        cu!(cuMemcpy(host.as_mut_ptr() as u64, other.as_ptr() as u64, 64));
        assert_eq!(host, [3; 64]);
        cu!(cuMemcpyHtoD_v2(device, other.as_ptr().cast(), 65) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuMemcpyHtoD_v2(device + 4096, other.as_ptr().cast(), 1) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuMemsetD8_v2(device, 1, 65) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuMemsetD32_v2(device + 1, 1, 1) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuMemcpyHtoD_v2(0, other.as_ptr().cast(), 1) => CUDA_ERROR_INVALID_VALUE);
    });
}

#[test]
fn rows_are_copied_by_their_pitches() {
    passes("backing:true", || {
        let (mut device, mut pitch) = (0, 0);
        cu!(cuMemAllocPitch_v2(&mut device, &mut pitch, 3, 2, 4));
        assert_eq!(pitch, 512);
        let (sent, mut got) = ([1u8, 2, 3, 0, 4, 5, 6, 0], [0u8; 6]);
        let mut copy = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
            srcHost: sent.as_ptr().cast(),
            srcDevice: 0,
            srcArray: null_mut(),
            srcPitch: 4,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstHost: null_mut(),
            dstDevice: device,
            dstArray: null_mut(),
            dstPitch: pitch,
            WidthInBytes: 3,
            Height: 2,
        };
        cu!(cuMemcpy2D_v2(&copy));
        copy.srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
        (copy.srcDevice, copy.srcPitch) = (device, pitch);
        copy.dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
        (copy.dstHost, copy.dstPitch) = (got.as_mut_ptr().cast(), 3);
        cu!(cuMemcpy2DAsync_v2(&copy, null_mut()));
        assert_eq!(got, [1, 2, 3, 4, 5, 6]);
        copy.dstPitch = 2;
        cu!(cuMemcpy2D_v2(&copy) => CUDA_ERROR_INVALID_VALUE);
    });
}
