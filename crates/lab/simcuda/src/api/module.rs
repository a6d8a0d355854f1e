//! Modules, their functions, and the linker. Code is taken as it is and never looked into: every
//! name is a function of every module.

use crate::abi::{Out, Raw, Text};
use crate::context::{current, current_raw};
use crate::device::Device;
use crate::handle::Kind;
use crate::process::resolve;
use crate::status::{
    FILE_NOT_FOUND, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED, Outcome,
};
use crate::tables::Kernel;
use std::ffi::{c_char, c_void};

/// Attributes of a function as compiled for nothing.
pub(crate) fn attribute_of(device: &Device, kernel: &Kernel, number: i32) -> Outcome<i32> {
    let compute = device.config.compute.0 * 10 + device.config.compute.1;
    let initial = match number {
        0 => 1024,
        4 => 32,
        5 | 6 => compute,
        9 => -1,
        1..=3 | 7 | 8 | 10..=15 => 0,
        _ => return Err(INVALID_VALUE),
    };
    Ok(kernel.attributes.get(&number).copied().unwrap_or(initial))
}

/// The ordinal's attribute that may be set: shared memory, carve-out, cluster sizes.
pub(crate) fn set_attribute(kernel: &mut Kernel, number: i32, value: i32) -> Outcome {
    INVALID_VALUE.when(!(8..=15).contains(&number))?;
    kernel.attributes.insert(number, value);
    Ok(())
}

fn load(module: Out<Raw>, image: Raw) -> Outcome {
    let device = current()?;
    INVALID_VALUE.when(image.0 == 0)?;
    module.check()?;
    let value = device.tables.lock().modules.load(Some(current_raw()));
    module.set(device.handle(Kind::Module, value))
}

pub(crate) fn function(found: Out<Raw>, owner: Raw, kind: Kind, name: Text) -> Outcome {
    let (device, value) = resolve(owner, kind)?;
    let name = name.get()?;
    found.check()?;
    let function = device.tables.lock().modules.function(value, owner, &name)?;
    found.set(device.handle(Kind::Function, function))
}

/// How many functions there are that were asked for by name.
pub(crate) fn count_functions(count: Out<u32>, owner: Raw, kind: Kind) -> Outcome {
    let (device, value) = resolve(owner, kind)?;
    count.set(device.tables.lock().modules.functions(value)?.len() as u32)
}

/// The first of them.
pub(crate) fn first_functions(found: Out<Raw>, count: u32, owner: Raw, kind: Kind) -> Outcome {
    let (device, value) = resolve(owner, kind)?;
    let all = device.tables.lock().modules.functions(value)?.to_vec();
    for (index, function) in all.into_iter().take(count as usize).enumerate() {
        found.at(index).set(device.handle(Kind::Function, function))?;
    }
    Ok(())
}

/// What the linker gives: an image that every load takes.
static LINKED: [u64; 1] = [0];

api! {
    fn cuModuleLoad(module: Out<Raw>, path: Text) |call| {
        let path = path.get()?;
        FILE_NOT_FOUND.when(!std::path::Path::new(&path).exists())?;
        load(module, Raw(1))
    }

    fn cuModuleLoadData = cuModuleLoadFatBinary (module: Out<Raw>, image: Raw) |call| {
        load(module, image)
    }

    fn cuModuleLoadDataEx(
        module: Out<Raw>, image: Raw, count: u32, options: Raw, values: Raw
    ) |call| { load(module, image) }

    fn cuModuleUnload(module: Raw) |call| {
        let (device, value) = resolve(module, Kind::Module)?;
        device.tables.lock().modules.unload(value)
    }

    fn cuModuleGetLoadingMode(mode: Out<i32>) |call| { mode.set(2) }

    fn cuModuleGetFunction(found: Out<Raw>, module: Raw, name: Text) |call| {
        function(found, module, Kind::Module, name)
    }

    fn cuModuleGetFunctionCount(count: Out<u32>, module: Raw) |call| {
        count_functions(count, module, Kind::Module)
    }

    fn cuModuleEnumerateFunctions(functions: Out<Raw>, count: u32, module: Raw) |call| {
        first_functions(functions, count, module, Kind::Module)
    }

    fn cuModuleGetGlobal_v2 = cuModuleGetGlobal (
        address: Out<u64>, bytes: Out<usize>, module: Raw, name: Text
    ) |call| {
        resolve(module, Kind::Module)?;
        Err(NOT_FOUND)
    }

    fn cuModuleGetTexRef = cuModuleGetSurfRef (found: Out<Raw>, module: Raw, name: Text) |call| {
        Err(NOT_FOUND)
    }

    fn cuFuncGetAttribute(value: Out<i32>, number: i32, function: Raw) |call| {
        let (device, kernel) = resolve(function, Kind::Function)?;
        let tables = device.tables.lock();
        value.set(attribute_of(&device, tables.modules.kernel(kernel)?, number)?)
    }

    fn cuFuncSetAttribute(function: Raw, number: i32, value: i32) |call| {
        let (device, kernel) = resolve(function, Kind::Function)?;
        set_attribute(device.tables.lock().modules.kernel_mut(kernel)?, number, value)
    }

    fn cuFuncSetCacheConfig = cuFuncSetSharedMemConfig (function: Raw, config: i32) |call| {
        let (device, kernel) = resolve(function, Kind::Function)?;
        device.tables.lock().modules.kernel(kernel).map(drop)
    }

    fn cuFuncGetModule = cuKernelGetLibrary (owner: Out<Raw>, function: Raw) |call| {
        let (device, kernel) = resolve(function, Kind::Function)?;
        owner.set(device.tables.lock().modules.kernel(kernel)?.owner)
    }

    fn cuFuncGetName = cuKernelGetName (name: Out<*const c_char>, function: Raw) |call| {
        let (device, kernel) = resolve(function, Kind::Function)?;
        name.set(device.tables.lock().modules.kernel(kernel)?.name.as_ptr())
    }

    fn cuFuncGetParamInfo = cuKernelGetParamInfo (
        function: Raw, index: usize, offset: Out<usize>, size: Out<usize>
    ) |call| { Err(NOT_SUPPORTED) }

    fn cuFuncIsLoaded(state: Out<i32>, function: Raw) |call| {
        resolve(function, Kind::Function)?;
        state.set(1)
    }

    fn cuFuncLoad(function: Raw) |call| { resolve(function, Kind::Function).map(drop) }

    fn cuLinkCreate_v2 = cuLinkCreate (
        count: u32, options: Raw, values: Raw, link: Out<Raw>
    ) |call| {
        let device = current()?;
        link.check()?;
        let value = device.tables.lock().modules.links.insert(());
        link.set(device.handle(Kind::Link, value))
    }

    fn cuLinkAddData_v2 = cuLinkAddData (
        link: Raw, kind: i32, data: Raw, bytes: usize, name: Text, count: u32, options: Raw,
        values: Raw
    ) |call| { resolve(link, Kind::Link).map(drop) }

    fn cuLinkAddFile_v2 = cuLinkAddFile (
        link: Raw, kind: i32, path: Text, count: u32, options: Raw, values: Raw
    ) |call| { resolve(link, Kind::Link).map(drop) }

    fn cuLinkComplete(link: Raw, image: Out<*const c_void>, bytes: Out<usize>) |call| {
        resolve(link, Kind::Link)?;
        image.set(LINKED.as_ptr().cast())?;
        bytes.set_if_wanted(size_of_val(&LINKED));
        Ok(())
    }

    fn cuLinkDestroy(link: Raw) |call| {
        let (device, value) = resolve(link, Kind::Link)?;
        device.tables.lock().modules.links.remove(value).ok_or(INVALID_HANDLE)
    }
}
