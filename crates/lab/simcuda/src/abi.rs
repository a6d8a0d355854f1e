//! What crosses the C boundary: pointers that are checked where they are used, raw handles, and
//! the structures of `cuda.h` that the API is called with.
//!
//! Numbers of C enumerations are plain integers here: a caller may pass any value.

use crate::status::{INVALID_VALUE, Outcome};
use std::ffi::{CStr, c_char, c_void};
use std::fmt;

/// A place the caller wants an answer in.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the answer; null is refused.
    pub(crate) fn set(self, value: T) -> Outcome {
        INVALID_VALUE.when(self.0.is_null())?;
        // SAFETY: not null, and the API asks for a pointer to a writable `T`; it need not be
        // aligned, nor hold a value yet.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes the answer if the caller wants it.
    pub(crate) fn set_if_wanted(self, value: T) {
        let _ = self.set(value);
    }

    /// Refuses null before anything is done.
    pub(crate) fn check(self) -> Outcome<Self> {
        if self.0.is_null() { Err(INVALID_VALUE) } else { Ok(self) }
    }

    pub(crate) const fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// What the caller wrote there before.
    pub(crate) fn get(self) -> Outcome<T>
    where
        T: Copy,
    {
        In(self.0.cast_const()).get()
    }

    /// The `index`-th place of an array.
    pub(crate) fn at(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }

    /// The same place, as another type.
    pub(crate) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

/// A value, or an array of values, that the caller hands in.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct In<T>(*const T);

impl<T> Out<T> {
    /// No place: the caller does not want the answer.
    pub(crate) const fn null() -> Self {
        Self(std::ptr::null_mut())
    }
}

impl<T: Copy> In<T> {
    /// The value; null is refused.
    pub(crate) fn get(self) -> Outcome<T> {
        INVALID_VALUE.when(self.0.is_null())?;
        // SAFETY: not null, and the API asks for a pointer to a readable `T`, which is plain data.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// The `index`-th value of an array.
    pub(crate) fn at(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }

    pub(crate) fn all(self, count: usize) -> Outcome<Vec<T>> {
        (0..count).map(|index| self.at(index).get()).collect()
    }

    /// The same place, as another type.
    pub(crate) fn cast<U>(self) -> In<U> {
        In(self.0.cast())
    }
}

impl<T> fmt::Debug for Out<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}", self.0)
    }
}

impl<T> fmt::Debug for In<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}", self.0)
    }
}

/// A C string that the caller hands in.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// The text, with what is not UTF-8 replaced; null is refused.
    pub(crate) fn get(self) -> Outcome<String> {
        INVALID_VALUE.when(self.0.is_null())?;
        // SAFETY: not null, and the API asks for a C string.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Ok(text) => write!(f, "{text:?}"),
            Err(_) => f.write_str("null"),
        }
    }
}

#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextBuffer(*mut c_char);

impl TextBuffer {
    /// Writes as much of the text as fits, and a NUL; null and no room are refused.
    pub(crate) fn set(self, room: usize, text: &str) -> Outcome {
        INVALID_VALUE.when(room == 0)?;
        let place = Out(self.0.cast::<u8>()).check()?;
        let kept = text.len().min(room - 1);
        for (index, byte) in text.bytes().take(kept).chain([0]).enumerate() {
            place.at(index).set(byte)?;
        }
        Ok(())
    }
}

/// A handle or an address as the caller passed it: checked where it is used.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Raw(pub(crate) u64);

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A function that the device calls on the host.
pub(crate) type HostFunction = Option<unsafe extern "C" fn(*mut c_void)>;

/// `CU_MEM_LOCATION_TYPE_DEVICE`
pub(crate) const DEVICE: i32 = 1;
/// `CU_MEM_LOCATION_TYPE_HOST`
pub(crate) const HOST: i32 = 2;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
pub(crate) const POSIX_FD: i32 = 1;

/// `CUmemLocation`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) kind: i32,
    pub(crate) id: i32,
}

/// `CUmemAllocationProp`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemoryProperties {
    pub(crate) kind: i32,
    pub(crate) handle_types: i32,
    pub(crate) location: Location,
    pub(crate) win32: u64,
    pub(crate) compression: u8,
    pub(crate) is_rdma_capable: u8,
    pub(crate) usage: u16,
    pub(crate) reserved: [u8; 4],
}

/// `CUmemAccessDesc`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Access {
    pub(crate) location: Location,
    pub(crate) flags: i32,
}

/// `CUmemPoolProps`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolProperties {
    pub(crate) kind: i32,
    pub(crate) handle_types: i32,
    pub(crate) location: Location,
    pub(crate) win32: u64,
    pub(crate) max_bytes: usize,
    pub(crate) usage: u16,
    pub(crate) reserved: [u8; 54],
}

/// `CUipcMemHandle`, `CUipcEventHandle`, `CUmemPoolPtrExportData`
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Opaque64(pub(crate) [u64; 8]);

impl fmt::Debug for Opaque64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x?}", self.0)
    }
}

/// `CUDA_MEMCPY2D`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy2d {
    pub(crate) from: Side2d,
    pub(crate) to: Side2d,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// One side of a [`Copy2d`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side2d {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) kind: i32,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: u64,
    pub(crate) pitch: usize,
}

/// `CUDA_MEMCPY3D` and, with the same layout, `CUDA_MEMCPY3D_PEER`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy3d {
    pub(crate) from: Side3d,
    pub(crate) to: Side3d,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// One side of a [`Copy3d`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side3d {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) z: usize,
    pub(crate) lod: usize,
    pub(crate) kind: i32,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: u64,
    pub(crate) context: u64,
    pub(crate) pitch: usize,
    pub(crate) height: usize,
}

/// The head of `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchConfig {
    pub(crate) sizes: [u32; 7],
    pub(crate) stream: Raw,
    pub(crate) attributes: u64,
    pub(crate) attribute_count: u32,
}
