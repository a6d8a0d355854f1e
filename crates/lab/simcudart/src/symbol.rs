//! Variables of the device that programs name: `__device__` and `__constant__`.
//!
//! On a device they lie beside the code, in no allocation. Here they lie in the host's memory, made
//! when first asked for, and copies reach them like any other.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::context::in_context;
use crate::copy::{Direction, cudaMemcpy, cudaMemcpyAsync};
use crate::driver::{Address, Handle, Status, Stream};
use crate::error;
use crate::forward::per_thread;
use crate::last_error::record;

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

/// Names a variable.
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
    if let Some((address, _)) = find(host.cast()) {
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
fn find(symbol: *const c_void) -> Option<(Address, usize)> {
    let mut variables = variables();
    let variable = variables.get_mut(&symbol.addr())?;
    if variable.address == 0 {
        // It stays as long as the program, as the code on a device does.
        let memory: &'static mut [u8] = Box::leak(vec![0; variable.size.max(1)].into());
        variable.address = memory.as_mut_ptr().expose_provenance();
    }
    Some((std::ptr::with_exposed_provenance_mut(variable.address), variable.size))
}

/// Writes what a variable has where the caller wants it.
unsafe fn tell<T>(to: *mut T, symbol: *const c_void, what: fn((Address, usize)) -> T) -> Status {
    in_context(|| match find(symbol) {
        _ if to.is_null() => error::INVALID_VALUE,
        None => error::INVALID_SYMBOL,
        Some(variable) => {
            // SAFETY: the caller passes room for it.
            unsafe { to.write(what(variable)) };
            error::SUCCESS
        }
    })
}

/// Tells where a variable lies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetSymbolAddress(to: *mut Address, symbol: *const c_void) -> Status {
    // SAFETY: the contract is the same.
    unsafe { tell(to, symbol, |(address, _)| address) }
}

/// Tells how large a variable is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetSymbolSize(to: *mut usize, symbol: *const c_void) -> Status {
    // SAFETY: the contract is the same.
    unsafe { tell(to, symbol, |(_, size)| size) }
}

/// Where a copy of so many bytes begins in a variable, if they lie in it.
fn part(symbol: *const c_void, size: usize, offset: usize) -> Result<Address, Status> {
    let (address, whole) = find(symbol).ok_or(error::INVALID_SYMBOL)?;
    if offset.checked_add(size).is_none_or(|end| end > whole) {
        return Err(error::INVALID_VALUE);
    }
    Ok(address.wrapping_byte_add(offset))
}

/// Copies into or out of a part of a variable.
fn with_part(
    (symbol, size, offset): (*const c_void, usize, usize),
    copy: impl FnOnce(Address) -> Status,
) -> Status {
    part(symbol, size, offset).map_or_else(record, copy)
}

/// Copies into a variable, and waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpyToSymbol(
    symbol: *const c_void,
    from: Address,
    size: usize,
    offset: usize,
    _direction: Direction,
) -> Status {
    // SAFETY: the variable has room; the caller's address is good for as many bytes.
    with_part((symbol, size, offset), |to| unsafe { cudaMemcpy(to, from, size, UNIFIED) })
}

/// Copies into a variable in stream order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpyToSymbolAsync(
    symbol: *const c_void,
    from: Address,
    size: usize,
    offset: usize,
    _direction: Direction,
    stream: Stream,
) -> Status {
    with_part((symbol, size, offset), |to| {
        // SAFETY: the variable has room; the caller's address is good for as many bytes.
        unsafe { cudaMemcpyAsync(to, from, size, UNIFIED, stream) }
    })
}

/// Copies out of a variable, and waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpyFromSymbol(
    to: Address,
    symbol: *const c_void,
    size: usize,
    offset: usize,
    _direction: Direction,
) -> Status {
    // SAFETY: the variable is as large; the caller's address is good for as many bytes.
    with_part((symbol, size, offset), |from| unsafe { cudaMemcpy(to, from, size, UNIFIED) })
}

/// Copies out of a variable in stream order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpyFromSymbolAsync(
    to: Address,
    symbol: *const c_void,
    size: usize,
    offset: usize,
    _direction: Direction,
    stream: Stream,
) -> Status {
    with_part((symbol, size, offset), |from| {
        // SAFETY: the variable is as large; the caller's address is good for as many bytes.
        unsafe { cudaMemcpyAsync(to, from, size, UNIFIED, stream) }
    })
}

per_thread! {
    cudaMemcpyToSymbol_ptds => cudaMemcpyToSymbol(
        symbol: *const c_void, from: Address, size: usize, offset: usize, direction: Direction);
    cudaMemcpyFromSymbol_ptds => cudaMemcpyFromSymbol(
        to: Address, symbol: *const c_void, size: usize, offset: usize, direction: Direction);
    cudaMemcpyToSymbolAsync_ptsz => cudaMemcpyToSymbolAsync(
        symbol: *const c_void, from: Address, size: usize, offset: usize, direction: Direction,
        stream: Stream);
    cudaMemcpyFromSymbolAsync_ptsz => cudaMemcpyFromSymbolAsync(
        to: Address, symbol: *const c_void, size: usize, offset: usize, direction: Direction,
        stream: Stream);
}
