//! Device memory of every kind, pools, host memory, what an address tells.

use crate::program::{
    GRANULE, access, allocate, create, cu, map, passes, pool_properties, properties, reserve,
    stream, told_of, used_bytes, zeroed,
};
use cudarc::driver::sys::CUpointer_attribute_enum as PointerAttribute;
use cudarc::driver::sys::{self, CUmemPool_attribute_enum as PoolAttribute};
use std::ffi::c_void;
use std::ptr::null_mut;

#[test]
fn plain_memory_runs_out_and_comes_back() {
    passes("memory:64MiB", || {
        let mut address = 0;
        cu!(cuMemAlloc_v2(&mut address, 0) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuMemAlloc_v2(&mut address, 65 << 20) => CUDA_ERROR_OUT_OF_MEMORY);
        cu!(cuMemAlloc_v2(&mut address, usize::MAX) => CUDA_ERROR_OUT_OF_MEMORY);
        cu!(cuMemAlloc_v2(null_mut(), 512) => CUDA_ERROR_INVALID_VALUE);
        assert_eq!(used_bytes(), 0);
        let address = allocate(64 << 20);
        assert_eq!(used_bytes(), 64 << 20);
        cu!(cuMemFree_v2(address + 512) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuMemFree_v2(address));
        cu!(cuMemFree_v2(address) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuMemFree_v2(0));
        assert_eq!(used_bytes(), 0);
    });
}

#[test]
fn virtual_memory_is_mapped_retained_and_given_back() {
    passes("", || {
        let (address, handle) = (reserve(2 * GRANULE), create(GRANULE));
        cu!(cuMemMap(address, GRANULE, 0, handle, 0));
        cu!(cuMemMap(address, GRANULE, 0, handle, 0) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuMemSetAccess(address, 2 * GRANULE, &access(0), 1) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuMemSetAccess(address, GRANULE, &access(0), 1));
        let mut flags = 0;
        cu!(cuMemGetAccess(&mut flags, &access(0).location, address));
        assert_eq!(flags, 3);
        let mut again = 0;
        cu!(cuMemRetainAllocationHandle(&mut again, (address + 5) as *mut c_void));
        assert_eq!(again, handle);
        cu!(cuMemRelease(handle));
        cu!(cuMemRelease(handle));
        cu!(cuMemRelease(handle) => CUDA_ERROR_INVALID_HANDLE);
        cu!(cuMemRetainAllocationHandle(&mut again, address as *mut c_void));
        cu!(cuMemRelease(again));
        cu!(cuMemAddressFree(address, 2 * GRANULE) => CUDA_ERROR_INVALID_VALUE);
        assert_eq!(used_bytes(), GRANULE);
        cu!(cuMemUnmap(address, GRANULE));
        assert_eq!(used_bytes(), 0);
        cu!(cuMemAddressFree(address, 2 * GRANULE));
        let mut handle = 0;
        cu!(cuMemCreate(&mut handle, 4096, &properties(0), 0) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuMemCreate(&mut handle, GRANULE, &properties(7), 0) => CUDA_ERROR_INVALID_DEVICE);
        cu!(cuMemCreate(&mut handle, GRANULE, std::ptr::null(), 0) => CUDA_ERROR_INVALID_VALUE);
    });
}

fn pool_number(pool: sys::CUmemoryPool, attribute: PoolAttribute) -> u64 {
    let mut value = 0u64;
    cu!(cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()));
    value
}

#[test]
fn a_pool_keeps_what_its_threshold_says() {
    passes("", || {
        let (mut pool, mut current, stream) = (null_mut(), null_mut(), stream());
        cu!(cuDeviceGetDefaultMemPool(&mut pool, 0));
        cu!(cuDeviceGetMemPool(&mut current, 0));
        assert_eq!(pool, current);
        let mut threshold = u64::MAX;
        let attribute = PoolAttribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        cu!(cuMemPoolSetAttribute(pool, attribute, (&raw mut threshold).cast()));
        assert_eq!(pool_number(pool, attribute), u64::MAX);
        let mut address = 0;
        cu!(cuMemAllocAsync(&mut address, 1000, stream));
        assert_eq!(pool_number(pool, PoolAttribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 1024);
        let owner: usize = told_of(address, PointerAttribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
        assert_eq!(owner, pool.addr());
        cu!(cuMemFreeAsync(address, stream));
        cu!(cuMemFreeAsync(address, stream) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuStreamSynchronize(stream));
        assert!(used_bytes() > 0);
        cu!(cuMemPoolTrimTo(pool, 0));
        assert_eq!(used_bytes(), 0);
        cu!(cuMemPoolDestroy(pool) => CUDA_ERROR_INVALID_VALUE);
    });
}

#[test]
fn a_created_pool_serves_and_can_be_current() {
    passes("stale_handles_end:false", || {
        let (mut pool, mut address, mut current) = (null_mut(), 0, null_mut());
        cu!(cuMemPoolCreate(&mut pool, &pool_properties()));
        cu!(cuMemAllocFromPoolAsync(&mut address, 512, pool, null_mut()));
        cu!(cuDeviceSetMemPool(0, pool));
        cu!(cuDeviceGetMemPool(&mut current, 0));
        assert_eq!(current, pool);
        cu!(cuMemPoolDestroy(pool));
        cu!(cuMemAllocFromPoolAsync(&mut 0, 512, pool, null_mut()) =>
            CUDA_ERROR_INVALID_HANDLE);
        cu!(cuDeviceGetMemPool(&mut current, 0));
        assert_ne!(current, pool);
        // Freed without a stream, and after its pool.
        cu!(cuMemFree_v2(address));
    });
}

#[test]
fn an_address_tells_what_it_is_of() {
    passes("", || {
        let (plain, mut host, mut managed) = (allocate(1000), null_mut(), 0);
        cu!(cuMemAllocHost_v2(&mut host, 5000));
        cu!(cuMemAllocManaged(&mut managed, 5000, 1));
        for (address, kind, is_managed, bytes) in
            [(plain, 2, 0, 1000), (host as u64, 1, 0, 5000), (managed, 2, 1, 5000)]
        {
            use PointerAttribute::{
                CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            };
            assert_eq!(told_of::<u32>(address + 9, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), kind);
            assert_eq!(told_of::<u32>(address, CU_POINTER_ATTRIBUTE_IS_MANAGED), is_managed);
            assert_eq!(told_of::<usize>(address, CU_POINTER_ATTRIBUTE_RANGE_SIZE), bytes);
            let mut start = 7u64;
            cu!(cuMemGetAddressRange_v2(&mut start, null_mut(), address + 9));
            assert_eq!(start, address);
        }
        let attribute = PointerAttribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        let mut number = 0u32;
        let data = (&raw mut number).cast::<c_void>();
        cu!(cuPointerGetAttribute(data, attribute, plain + 1000) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuPointerGetAttribute(data, attribute, data as u64) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuMemFree_v2(managed));
        cu!(cuMemFreeHost(host));
        cu!(cuMemFreeHost(host) => CUDA_ERROR_INVALID_VALUE);
    });
}

#[test]
fn an_allocation_tells_of_its_context_its_handles_and_a_number_of_its_own() {
    use PointerAttribute::{
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, CU_POINTER_ATTRIBUTE_BUFFER_ID,
        CU_POINTER_ATTRIBUTE_CONTEXT,
    };
    passes("", || {
        let tells = |address| {
            let of = |attribute| told_of::<u64>(address, attribute);
            let [context, handles] =
                [CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES].map(of);
            (context != 0, handles)
        };
        let number = |address| told_of::<u64>(address, CU_POINTER_ATTRIBUTE_BUFFER_ID);
        let (plain, mut pooled) = (allocate(512), 0);
        cu!(cuMemAllocAsync(&mut pooled, 512, null_mut()));
        assert_eq!((tells(plain), tells(pooled)), ((true, 0), (false, 0)));
        let (mut properties, mut own, address) = (properties(0), 0, reserve(2 * GRANULE));
        map(address, GRANULE, create(GRANULE), 0);
        properties.requestedHandleTypes = zeroed();
        cu!(cuMemCreate(&mut own, GRANULE, &properties, 0));
        map(address + GRANULE as u64, GRANULE, own, 0);
        assert_eq!(tells(address), (false, 1));
        assert_eq!(tells(address + GRANULE as u64), (false, 0));
        let mut seen = std::collections::HashSet::new();
        for address in [plain, pooled, address, address + GRANULE as u64] {
            assert_eq!(number(address), number(address + 9));
            assert!(seen.insert(number(address)));
        }
        cu!(cuMemFree_v2(plain));
        assert_eq!(allocate(512), plain);
        cu!(cuMemUnmap(address, GRANULE));
        map(address, GRANULE, create(GRANULE), 0);
        assert!(seen.insert(number(plain)) && seen.insert(number(address)));
    });
}

#[test]
fn host_memory_is_registered_once() {
    passes("", || {
        let mut own = vec![0u8; 8192];
        let (at, mut device, mut flags) = (own.as_mut_ptr().cast::<c_void>(), 0, 0);
        cu!(cuMemHostRegister_v2(at, 8192, 1));
        cu!(cuMemHostRegister_v2(at.wrapping_byte_add(8000), 1000, 0) =>
            CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        cu!(cuMemHostGetDevicePointer_v2(&mut device, at, 0));
        assert_eq!(device, at as u64);
        cu!(cuMemHostGetFlags(&mut flags, at));
        assert_eq!(flags, 3);
        cu!(cuMemHostUnregister(at));
        cu!(cuMemHostUnregister(at) => CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    });
}
