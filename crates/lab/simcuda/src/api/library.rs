//! Libraries of kernels, which belong to no context; here they belong to the first device asked.

use super::module::{attribute_of, count_functions, first_functions, function, set_attribute};
use crate::abi::{Out, Raw, Text};
use crate::context::current;
use crate::handle::Kind;
use crate::process;
use crate::process::{device_at, resolve};
use crate::status::{FILE_NOT_FOUND, INVALID_VALUE, NOT_FOUND, Outcome};

fn load(library: Out<Raw>, image: Raw) -> Outcome {
    INVALID_VALUE.when(image.0 == 0)?;
    let device = current().or_else(|_| process::device(0))?;
    library.check()?;
    let value = device.tables.lock().modules.load(None);
    library.set(device.handle(Kind::Library, value))
}

api! {
    fn cuLibraryLoadData(
        library: Out<Raw>, image: Raw, options: Raw, values: Raw, count: u32,
        library_options: Raw, library_values: Raw, library_count: u32
    ) |call| { load(library, image) }

    fn cuLibraryLoadFromFile(
        library: Out<Raw>, path: Text, options: Raw, values: Raw, count: u32,
        library_options: Raw, library_values: Raw, library_count: u32
    ) |call| {
        FILE_NOT_FOUND.when(!std::path::Path::new(&path.get()?).exists())?;
        load(library, Raw(1))
    }

    fn cuLibraryUnload(library: Raw) |call| {
        let (device, value) = resolve(library, Kind::Library)?;
        device.tables.lock().modules.unload(value)
    }

    fn cuLibraryGetKernel(kernel: Out<Raw>, library: Raw, name: Text) |call| {
        function(kernel, library, Kind::Library, name)
    }

    fn cuLibraryGetKernelCount(count: Out<u32>, library: Raw) |call| {
        count_functions(count, library, Kind::Library)
    }

    fn cuLibraryEnumerateKernels(kernels: Out<Raw>, count: u32, library: Raw) |call| {
        first_functions(kernels, count, library, Kind::Library)
    }

    fn cuLibraryGetModule(module: Out<Raw>, library: Raw) |call| {
        let (device, value) = resolve(library, Kind::Library)?;
        device.tables.lock().modules.functions(value)?;
        module.set(device.handle(Kind::Module, value))
    }

    fn cuLibraryGetGlobal = cuLibraryGetManaged (
        address: Out<u64>, bytes: Out<usize>, library: Raw, name: Text
    ) |call| { Err(NOT_FOUND) }

    fn cuLibraryGetUnifiedFunction(function: Out<Raw>, library: Raw, name: Text) |call| {
        Err(NOT_FOUND)
    }

    fn cuKernelGetFunction(function: Out<Raw>, kernel: Raw) |call| {
        let (device, value) = resolve(kernel, Kind::Function)?;
        device.tables.lock().modules.kernel(value)?;
        function.set(kernel)
    }

    fn cuKernelGetAttribute(value: Out<i32>, number: i32, kernel: Raw, device: i32) |call| {
        device_at(device)?;
        let (device, kernel) = resolve(kernel, Kind::Function)?;
        let tables = device.tables.lock();
        value.set(attribute_of(&device, tables.modules.kernel(kernel)?, number)?)
    }

    fn cuKernelSetAttribute(number: i32, value: i32, kernel: Raw, device: i32) |call| {
        device_at(device)?;
        let (device, kernel) = resolve(kernel, Kind::Function)?;
        set_attribute(device.tables.lock().modules.kernel_mut(kernel)?, number, value)
    }

    fn cuKernelSetCacheConfig(kernel: Raw, config: i32, device: i32) |call| {
        device_at(device)?;
        resolve(kernel, Kind::Function).map(drop)
    }
}
