//! The driver as a whole: its start, its version, its errors, and what it has not.

use crate::abi::{Out, Raw, Text};
use crate::status::{INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED, Status};
use crate::{process, stats};
use std::ffi::c_char;

api! {
    fn cuInit(flags: u32) |call| {
        INVALID_VALUE.when(flags != 0)?;
        process::init(stats::write_at_exit)
    }

    fn cuDriverGetVersion(version: Out<i32>) |call| {
        version.set(process::config().driver_version)
    }

    fn cuGetErrorName(error: i32, name: Out<*const c_char>) |call| {
        let found = Status(error).describe();
        name.set(found.map_or(std::ptr::null(), |(name, _)| name.as_ptr().cast()))?;
        found.map(drop).ok_or(INVALID_VALUE)
    }

    fn cuGetErrorString(error: i32, text: Out<*const c_char>) |call| {
        let found = Status(error).describe();
        text.set(found.map_or(std::ptr::null(), |(_, text)| text.as_ptr().cast()))?;
        found.map(drop).ok_or(INVALID_VALUE)
    }

    fn cuProfilerInitialize(config: Text, output: Text, mode: i32) |call| { Err(NOT_SUPPORTED) }

    fn cuProfilerStart() |call| { Ok(()) }

    fn cuProfilerStop() |call| { Ok(()) }

    fn cuGetExportTable(table: Out<Raw>, id: Raw) |call| {
        table.set(Raw(0))?;
        Err(NOT_FOUND)
    }
}
