//! Variables of the device that programs name: `__device__` and `__constant__`.
//!
//! On a device they lie beside the code, in no allocation. Here they lie in the host's memory, made
//! when first asked for, and copies reach them like any other.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::context::make_current;
use crate::copy::{Direction, cudaMemcpy, cudaMemcpyAsync};
use crate::driver::{Address, Handle, Out, Stream};
use crate::error::{self, Outcome};
use crate::export::{adapt, exports};

const UNIFIED: Direction = Direction::UNIFIED;

struct Variable {
    size: usize,
    /// Where it lies, zero before it was asked for.
    address: usize,
}

/// By the address of the variable's shadow on the host.
static VARIABLES: LazyLock<Mutex<HashMap<usize, Variable>>> = LazyLock::new(Mutex::default);

fn variables() -> MutexGuard<'static, HashMap<usize, Variable>> {
    VARIABLES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterVar(
    _binary: *mut Handle,
    host: *mut c_char,
    _device: *mut c_char,
    _name: *const c_char,
    _is_external: c_int,
    size: usize,
    _is_constant: c_int,
    _is_global: c_int,
) {
    variables().insert(host.addr(), Variable { size, address: 0 });
}

/// Names a variable of managed memory, which the host reaches through a pointer of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterManagedVar(
    _binary: *mut Handle,
    host: *mut Address,
    _device: *mut c_char,
    _name: *const c_char,
    _is_external: c_int,
    size: usize,
    _is_constant: c_int,
    _is_global: c_int,
) {
    variables().insert(host.addr(), Variable { size, address: 0 });
    if let Ok((address, _)) = find(host.cast()) {
        // SAFETY: the program passes room for the pointer.
        unsafe { host.write(address) };
    }
}

/// Names a variable of the host that kernels read; none runs.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterHostVar(
    _binary: *mut Handle,
    _name: *const c_char,
    _host: *mut c_char,
    _size: usize,
) {
}

/// The variable's address and size.
fn find(symbol: *const c_void) -> Outcome<(Address, usize)> {
    let mut variables = variables();
    let variable = variables.get_mut(&symbol.addr()).ok_or(error::INVALID_SYMBOL)?;
    if variable.address == 0 {
        // It stays as long as the program, as the code on a device does.
        let memory: &'static mut [u8] = Box::leak(vec![0; variable.size.max(1)].into());
        variable.address = memory.as_mut_ptr().expose_provenance();
    }
    Ok((std::ptr::with_exposed_provenance_mut(variable.address), variable.size))
}

/// Where a copy of so many bytes begins in a variable, if they lie in it.
fn part(symbol: *const c_void, size: usize, offset: usize) -> Outcome<Address> {
    let (address, whole) = find(symbol)?;
    if offset.checked_add(size).is_none_or(|end| end > whole) {
        return Err(error::INVALID_VALUE);
    }
    Ok(address.wrapping_byte_add(offset))
}

exports! {
    fn cudaGetSymbolAddress(to: Out<Address>, symbol: *const c_void) {
        make_current()?;
        to.tell(find(symbol)?.0)
    }

    fn cudaGetSymbolSize(to: Out<usize>, symbol: *const c_void) {
        make_current()?;
        to.tell(find(symbol)?.1)
    }
}

adapt! {
    cudaMemcpyToSymbol / cudaMemcpyToSymbol_ptds (
        symbol: *const c_void, from: Address, size: usize, offset: usize, _direction: Direction
    ) => cudaMemcpy(part(symbol, size, offset)?, from, size, UNIFIED);
    cudaMemcpyToSymbolAsync / cudaMemcpyToSymbolAsync_ptsz (
        symbol: *const c_void, from: Address, size: usize, offset: usize, _direction: Direction,
        stream: Stream
    ) => cudaMemcpyAsync(part(symbol, size, offset)?, from, size, UNIFIED, stream);
    cudaMemcpyFromSymbol / cudaMemcpyFromSymbol_ptds (
        to: Address, symbol: *const c_void, size: usize, offset: usize, _direction: Direction
    ) => cudaMemcpy(to, part(symbol, size, offset)?, size, UNIFIED);
    cudaMemcpyFromSymbolAsync / cudaMemcpyFromSymbolAsync_ptsz (
        to: Address, symbol: *const c_void, size: usize, offset: usize, _direction: Direction,
        stream: Stream
    ) => cudaMemcpyAsync(to, part(symbol, size, offset)?, size, UNIFIED, stream);
}
