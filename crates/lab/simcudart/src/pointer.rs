//! What an address is: where it lies, and by which addresses each side reaches it.

use std::ffi::c_int;
use std::ptr;

use crate::context::make_current;
use crate::driver::{self, Address};
use crate::error;
use crate::export::{exports, tell};

/// What is told of an address. CUDA 13 added reserved room behind it, which is not written.
#[repr(C)]
pub struct PointerAttributes {
    /// 0 unknown to CUDA, 1 host, 2 device, 3 managed.
    kind: c_int,
    device: c_int,
    device_address: Address,
    host_address: Address,
}

/// Numbers of the driver's pointer attributes.
mod pointer_attribute {
    use std::ffi::c_int;
    pub const MEMORY_TYPE: c_int = 2;
    pub const DEVICE_POINTER: c_int = 3;
    pub const HOST_POINTER: c_int = 4;
    pub const IS_MANAGED: c_int = 8;
    pub const DEVICE_ORDINAL: c_int = 9;
}

fn attributes_of(address: Address) -> PointerAttributes {
    /// `cudaInvalidDeviceId`
    const NO_DEVICE: c_int = -2;
    const HOST: c_int = 1;
    const MANAGED: c_int = 3;
    let ask = |attribute, default| ask(attribute, address, default);
    let Some(kind) = ask(pointer_attribute::MEMORY_TYPE, 0_i32) else {
        return PointerAttributes {
            kind: 0,
            device: NO_DEVICE,
            device_address: ptr::null_mut(),
            host_address: address,
        };
    };
    let is_managed = ask(pointer_attribute::IS_MANAGED, 0_i32).is_some_and(|is| is & 1 != 0);
    let kind = if is_managed { MANAGED } else { kind };
    let pointer = |attribute| self::ask(attribute, address, ptr::null_mut()).unwrap_or_default();
    PointerAttributes {
        kind,
        device: ask(pointer_attribute::DEVICE_ORDINAL, 0_i32).unwrap_or(0),
        device_address: pointer(pointer_attribute::DEVICE_POINTER),
        host_address: match kind {
            HOST | MANAGED => pointer(pointer_attribute::HOST_POINTER),
            _ => ptr::null_mut(),
        },
    }
}

/// One attribute of an address, of the type that the driver writes; none if it knows no such.
fn ask<T>(attribute: c_int, address: Address, mut value: T) -> Option<T> {
    let to = (&raw mut value).cast();
    // SAFETY: every attribute asked for is at most as large as the value, a local.
    let status = unsafe { driver::cuPointerGetAttribute(to, attribute, address) };
    (status == error::SUCCESS).then_some(value)
}

exports! {
    /// Tells where an address is.
    fn cudaPointerGetAttributes(to: *mut PointerAttributes, address: Address) {
        if to.is_null() {
            return Err(error::INVALID_VALUE);
        }
        make_current()?;
        // SAFETY: the caller passes room for the attributes.
        unsafe { tell(to, attributes_of(address)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_the_layout_of_cuda_12_with_room_behind_in_13() {
        assert_eq!(size_of::<PointerAttributes>(), 24);
        assert_eq!(std::mem::offset_of!(PointerAttributes, host_address), 16);
    }
}
