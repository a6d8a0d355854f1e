//! What the driver makes on a device for itself: code, graphs, streams, events, page tables.
//!
//! Nobody has published how much it takes. CUDA's documentation lists `CUDA_ERROR_OUT_OF_MEMORY`
//! among what each of these functions returns, and "Lazy Loading" of the programming guide says
//! that a kernel may be loaded as late as by its first launch. So with the setting `driver_room`
//! each is refused where the device has less than that left, and takes nothing where it has.
//!
//! Invariant: a call that is refused has changed nothing.

use crate::fault::base_name;
use crate::status::Outcome;
use crate::{context, process};

/// Without versions and variants, with spaces between.
const NAMES: &str = "cuCtxEnablePeerAccess cuCtxSetLimit cuEventCreate cuFuncLoad \
     cuGraphInstantiate cuGraphInstantiateWithFlags cuGraphInstantiateWithParams cuGraphLaunch \
     cuGraphUpload cuKernelGetFunction cuLaunchCooperativeKernel cuLaunchKernel cuLaunchKernelEx \
     cuLibraryGetModule cuLibraryLoadData cuLibraryLoadFromFile cuMemAllocHost cuMemAllocManaged \
     cuMemHostAlloc cuMemHostRegister cuMemPoolCreate cuModuleGetFunction cuModuleLoad \
     cuStreamCreate cuStreamCreateWithPriority";
/// Those of which there are several.
const MODULES: &str = "cuModuleLoad";

/// Fails if the device has not the room that the function takes.
pub(crate) fn take(name: &str) -> Outcome {
    let room_bytes = process::config().driver_room_bytes;
    if room_bytes == 0 {
        return Ok(());
    }
    let name = base_name(name);
    if !NAMES.split(' ').any(|one| one == name) && !name.starts_with(MODULES) {
        return Ok(());
    }
    let device = process::device(context::current_ordinal().unwrap_or(0))?;
    Ok(device.sim.check_room(room_bytes)?)
}
