//! What the driver is told of memory that it is to make: where it lies, who may use it, how it can
//! be given away.
//!
//! Works around what differs between the bindings of CUDA 12.0 to 13.4: the location's ordinal is a
//! field in some and in a union in others, at the same place; properties grew fields, which are
//! zero here.

use std::mem;

use cudarc::driver::sys;
use drystone_driver::ShareableHandle;

/// `CUmemLocation` as every driver reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Location {
    kind: u32,
    ordinal: i32,
}

impl Location {
    const fn device(ordinal: i32) -> Self {
        Self { kind: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as u32, ordinal }
    }

    /// `CU_MEM_LOCATION_TYPE_HOST`, which the oldest bindings do not name: any node of the host.
    const HOST: Self = Self { kind: 2, ordinal: 0 };
}

/// `CUmemAccessDesc` as every driver reads it: one device may read and write.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    location: Location,
    rights: u32,
}

impl Access {
    pub(crate) const fn of(ordinal: i32) -> Self {
        let rights = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE as u32;
        Self { location: Location::device(ordinal), rights }
    }
}

const _: () = {
    assert!(size_of::<usize>() == size_of::<u64>(), "CUDA is for 64-bit hosts");
    assert!(size_of::<Location>() == size_of::<sys::CUmemLocation>());
    assert!(size_of::<Access>() == size_of::<sys::CUmemAccessDesc>());
};

/// The bit of a kind of handle (`CUmemAllocationHandleType`). Numbers, since the oldest bindings
/// do not name all of them.
pub(crate) const fn handle_bit(handle: ShareableHandle) -> u32 {
    match handle {
        ShareableHandle::None => 0,
        ShareableHandle::PosixFd => 1,
        ShareableHandle::Fabric => 8,
    }
}

/// What physical memory is made with.
#[derive(Clone, Copy)]
pub(crate) struct PhysicalMemory {
    /// The device that opens it.
    pub(crate) ordinal: i32,
    pub(crate) is_of_host: bool,
    pub(crate) handle: ShareableHandle,
    pub(crate) is_rdma_capable: bool,
}

impl PhysicalMemory {
    /// Memory of the host, which no other process can be given.
    pub(crate) const fn of_host(ordinal: i32) -> Self {
        let handle = ShareableHandle::None;
        Self { ordinal, is_of_host: true, handle, is_rdma_capable: false }
    }

    pub(crate) fn as_cuda(self) -> sys::CUmemAllocationProp {
        // SAFETY: a plain C struct of numbers, pointers and enums that all have a value 0.
        let mut properties: sys::CUmemAllocationProp = unsafe { mem::zeroed() };
        properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        let handles = match self.handle {
            // Other processes of this machine take descriptors, as with NCCL's own memory.
            ShareableHandle::Fabric => {
                handle_bit(ShareableHandle::Fabric) | handle_bit(ShareableHandle::PosixFd)
            }
            handle => handle_bit(handle),
        };
        properties.requestedHandleTypes = sys::CUmemAllocationHandleType_enum(handles);
        properties.allocFlags.gpuDirectRDMACapable = u8::from(self.is_rdma_capable);
        let location = (&raw mut properties.location).cast::<Location>();
        let place = if self.is_of_host { Location::HOST } else { Location::device(self.ordinal) };
        // SAFETY: it points to the location, which has this size and layout in every binding.
        unsafe { location.write(place) };
        properties
    }
}

/// What a memory pool on a device is made with.
pub(crate) fn memory_pool(ordinal: i32, handle: ShareableHandle) -> sys::CUmemPoolProps {
    // SAFETY: a plain C struct of numbers, pointers and enums that all have a value 0.
    let mut properties: sys::CUmemPoolProps = unsafe { mem::zeroed() };
    properties.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = sys::CUmemAllocationHandleType_enum(handle_bit(handle));
    let location = (&raw mut properties.location).cast::<Location>();
    // SAFETY: it points to the location, which has this size and layout in every binding.
    unsafe { location.write(Location::device(ordinal)) };
    properties
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use cudarc::driver::sys;
    use drystone_driver::ShareableHandle;

    use super::{Access, Location, PhysicalMemory, memory_pool};

    #[test]
    fn layouts_are_those_of_the_bindings() {
        assert_eq!(offset_of!(Location, kind), offset_of!(sys::CUmemLocation, type_));
        assert_eq!(offset_of!(Access, location), offset_of!(sys::CUmemAccessDesc, location));
        assert_eq!(offset_of!(Access, rights), offset_of!(sys::CUmemAccessDesc, flags));
    }

    #[test]
    fn the_ordinal_lands_behind_the_kind_of_location() {
        let memory = PhysicalMemory {
            ordinal: 7,
            is_of_host: false,
            handle: ShareableHandle::PosixFd,
            is_rdma_capable: true,
        };
        for (memory, expected) in [(memory, [1, 7]), (PhysicalMemory::of_host(7), [2, 0])] {
            let location = memory.as_cuda().location;
            // SAFETY: both are 8 bytes of plain numbers.
            let words: [u32; 2] = unsafe { std::mem::transmute(location) };
            assert_eq!(words, expected);
        }
        assert_eq!(memory.as_cuda().requestedHandleTypes.0, 1);
        assert_eq!(memory.as_cuda().allocFlags.gpuDirectRDMACapable, 1);
        let pool = memory_pool(7, ShareableHandle::Fabric);
        // SAFETY: as above.
        let words: [u32; 2] = unsafe { std::mem::transmute(pool.location) };
        assert_eq!((words, pool.handleTypes.0), ([1, 7], 8));
    }
}
