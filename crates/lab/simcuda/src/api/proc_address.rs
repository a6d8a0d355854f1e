//! `cuGetProcAddress`: every exported function by the name without its version.
//!
//! Invariant: what it finds is what is exported. A name stands for the newest version of a
//! function that the asked CUDA version has.

use crate::abi::{Out, Text};
use crate::entry::{Function, all};
use crate::fault::base_name;
use crate::process;
use crate::status::{INVALID_VALUE, NOT_FOUND, Outcome};

/// Since which CUDA a name stands for a function with a version; 3020 for the second versions of
/// old functions, which every program means by now.
const SINCE: &[(&str, i32)] = &[
    ("cuCtxCreate_v3", 11_040),
    ("cuCtxCreate_v4", 12_050),
    ("cuCtxGetDevice_v2", 13_000),
    ("cuCtxSynchronize_v2", 13_000),
    ("cuDeviceGetUuid_v2", 11_040),
    ("cuDevicePrimaryCtxRelease_v2", 11_000),
    ("cuDevicePrimaryCtxReset_v2", 11_000),
    ("cuDevicePrimaryCtxSetFlags_v2", 11_000),
    ("cuEventElapsedTime_v2", 12_080),
    ("cuGetProcAddress_v2", 12_000),
    ("cuGraphAddDependencies_v2", 12_030),
    ("cuGraphAddKernelNode_v2", 12_000),
    ("cuGraphAddNode_v2", 12_030),
    ("cuGraphExecKernelNodeSetParams_v2", 12_000),
    ("cuGraphExecUpdate_v2", 12_000),
    ("cuGraphGetEdges_v2", 12_030),
    ("cuGraphInstantiate_v2", 11_000),
    ("cuGraphKernelNodeGetParams_v2", 12_000),
    ("cuGraphKernelNodeSetParams_v2", 12_000),
    ("cuGraphNodeGetDependencies_v2", 12_030),
    ("cuGraphNodeGetDependentNodes_v2", 12_030),
    ("cuGraphRemoveDependencies_v2", 12_030),
    ("cuIpcOpenMemHandle_v2", 11_000),
    ("cuMemAdvise_v2", 12_020),
    ("cuMemcpyBatchAsync_v2", 13_000),
    ("cuMemPrefetchAsync_v2", 12_020),
    ("cuStreamBatchMemOp_v2", 11_070),
    ("cuStreamBeginCapture_v2", 10_010),
    ("cuStreamGetCaptureInfo_v2", 11_030),
    ("cuStreamGetCaptureInfo_v3", 12_030),
    ("cuStreamGetCtx_v2", 12_050),
    ("cuStreamUpdateCaptureDependencies_v2", 12_030),
    ("cuStreamWaitValue32_v2", 11_070),
    ("cuStreamWaitValue64_v2", 11_070),
    ("cuStreamWriteValue32_v2", 11_070),
    ("cuStreamWriteValue64_v2", 11_070),
];

/// Functions of a later CUDA than 12.0 that have no version in their names.
const NEWER: &[(&str, i32)] = &[
    ("cuMemGetDefaultMemPool", 13_000),
    ("cuMemGetMemPool", 13_000),
    ("cuMemSetMemPool", 13_000),
    ("cuStreamBeginCaptureToGraph", 12_030),
    ("cuStreamGetDevice", 12_080),
];

/// What a flag asks for: functions whose stream 0 is the thread's own.
const PER_THREAD: u64 = 2;
const FOUND: i32 = 0;
const NO_SYMBOL: i32 = 1;
const VERSION_TOO_OLD: i32 = 2;

fn without_suffix(name: &str) -> &str {
    name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")).unwrap_or(name)
}

fn since(name: &str) -> i32 {
    let name = without_suffix(name);
    let known = SINCE.iter().chain(NEWER).find(|row| row.0 == name).map(|row| row.1);
    known.unwrap_or(if base_name(name) == name { 0 } else { 3020 })
}

/// The function that a name stands for in this CUDA, or why there is none.
fn find(name: &str, version: i32, is_per_thread: bool) -> Result<&'static Function, i32> {
    // `cuGraphInstantiate` came to mean another function.
    let name = match name {
        "cuGraphInstantiate" if version >= 12_000 => "cuGraphInstantiateWithFlags",
        name => name,
    };
    let is_own = |function: &Function| without_suffix(function.name) != function.name;
    let named = all().filter(|function| base_name(function.name) == name);
    let best = named
        .filter(|function| since(function.name) <= version)
        .max_by_key(|function| (since(function.name), is_own(function) == is_per_thread));
    // A name with its version is that function and no other.
    let exact = || all().find(|function| function.name == name && base_name(name) != name);
    let is_too_new = || all().any(|function| base_name(function.name) == name);
    best.or_else(exact).ok_or_else(|| if is_too_new() { VERSION_TOO_OLD } else { NO_SYMBOL })
}

fn answer(name: Text, place: Out<*const ()>, version: i32, flags: u64) -> Outcome<i32> {
    let name = name.get()?;
    INVALID_VALUE.when(name.is_empty() || flags > 3)?;
    let found = find(&name, version, flags & PER_THREAD != 0);
    if let (Err(_), true) = (&found, process::config().debug) {
        eprintln!("simcuda: {name} of CUDA {version} was asked for and is not there");
    }
    place.set(found.map_or(std::ptr::null(), Function::address))?;
    Ok(found.err().unwrap_or(FOUND))
}

api! {
    fn cuGetProcAddress_v2 | cuGetProcAddress_v2_ptsz (
        name: Text, place: Out<*const ()>, version: i32, flags: u64, status: Out<i32>
    ) |call| {
        let flags = if call.is_per_thread && flags == 0 { PER_THREAD } else { flags };
        let found = answer(name, place, version, flags)?;
        NOT_FOUND.when(status.set(found).is_err() && found != FOUND)?;
        Ok(())
    }

    fn cuGetProcAddress | cuGetProcAddress_ptsz (
        name: Text, place: Out<*const ()>, version: i32, flags: u64
    ) |call| {
        let flags = if call.is_per_thread && flags == 0 { PER_THREAD } else { flags };
        if answer(name, place, version, flags)? == FOUND { Ok(()) } else { Err(NOT_FOUND) }
    }
}

#[cfg(test)]
mod tests {
    use super::{NEWER, SINCE, VERSION_TOO_OLD, all, base_name, find, without_suffix};
    use drystone_sim::Rule;
    use std::collections::HashSet;

    fn name_of(name: &str, version: i32, is_per_thread: bool) -> &'static str {
        find(name, version, is_per_thread).map_or("nothing", |function| function.name)
    }

    #[test]
    fn a_name_stands_for_the_newest_version_that_the_cuda_has() {
        assert_eq!(name_of("cuMemAlloc", 12_000, false), "cuMemAlloc_v2");
        assert_eq!(name_of("cuCtxCreate", 11_000, false), "cuCtxCreate_v2");
        assert_eq!(name_of("cuCtxCreate", 11_040, false), "cuCtxCreate_v3");
        assert_eq!(name_of("cuCtxCreate", 13_000, false), "cuCtxCreate_v4");
        assert_eq!(name_of("cuStreamGetCaptureInfo", 10_010, false), "cuStreamGetCaptureInfo");
        assert_eq!(name_of("cuStreamGetCaptureInfo", 12_020, false), "cuStreamGetCaptureInfo_v2");
        assert_eq!(name_of("cuStreamGetCaptureInfo", 13_000, false), "cuStreamGetCaptureInfo_v3");
        assert_eq!(name_of("cuGraphInstantiate", 11_080, false), "cuGraphInstantiate_v2");
        assert_eq!(name_of("cuGraphInstantiate", 12_000, false), "cuGraphInstantiateWithFlags");
        assert_eq!(name_of("cuMemFree_v2", 12_000, false), "cuMemFree_v2");
    }

    #[test]
    fn a_threads_own_stream_has_functions_of_its_own() {
        assert_eq!(name_of("cuLaunchKernel", 12_000, true), "cuLaunchKernel_ptsz");
        assert_eq!(name_of("cuLaunchKernel", 12_000, false), "cuLaunchKernel");
        assert_eq!(name_of("cuMemcpyHtoD", 12_000, true), "cuMemcpyHtoD_v2_ptds");
        assert_eq!(name_of("cuMemAlloc", 12_000, true), "cuMemAlloc_v2");
    }

    #[test]
    fn what_is_not_there_is_told_from_what_is_too_new() {
        assert_eq!(find("cuTeleport", 13_000, false).err(), Some(1));
        assert_eq!(find("cuMemGetMemPool", 12_000, false).err(), Some(VERSION_TOO_OLD));
    }

    #[test]
    fn every_exported_function_is_found_by_its_own_name_and_listed_once() {
        let mut names = HashSet::new();
        for function in all() {
            assert!(names.insert(function.name), "{} is listed twice", function.name);
            let is_own = without_suffix(function.name) != function.name;
            assert!(find(function.name, 13_000, is_own).is_ok(), "{}", function.name);
        }
        for (name, _) in SINCE.iter().chain(NEWER) {
            assert!(names.contains(name), "{name} has a version and is not there");
        }
        assert!(names.len() > 350, "{}", names.len());
    }

    #[test]
    fn of_every_function_it_is_told_what_captures_forbid() {
        for function in all() {
            let name = base_name(function.name);
            assert!(Rule::named(name).is_some(), "{name} has no rule");
        }
        for rule in Rule::all() {
            let is_there = all().any(|function| base_name(function.name) == rule.function);
            assert!(is_there, "there is no {}", rule.function);
        }
    }
}
