//! One device of several processes: what one holds, the others have not, until it ends.

use crate::program::{GRANULE, MIB, cu, passes_alone, properties, start, used_bytes};
use std::io::{Read, Write};

/// Of the device in these tests.
const GRANULES: u64 = 32;

/// Takes granules until there are none left. Returns how many that were.
fn take_all() -> u64 {
    let (mut taken, mut handle) = (0, 0);
    loop {
        // SAFETY: writes a handle and reads properties, which are locals.
        let done = unsafe {
            cudarc::driver::sys::cuMemCreate(&raw mut handle, GRANULE, &properties(0), 0)
        };
        if done != cudarc::driver::sys::CUresult::CUDA_SUCCESS {
            assert_eq!(done, cudarc::driver::sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY);
            return taken;
        }
        taken += 1;
    }
}

#[test]
fn two_processes_never_hold_more_than_there_is_and_a_killed_one_holds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("device");
    let conf = format!("memory:{}MiB,shared:{}", GRANULES as usize * GRANULE / MIB, file.display());
    passes_alone(&conf, || {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        // SAFETY: the driver is not in use yet; the child makes its own.
        let child = unsafe { libc::fork() };
        if child == 0 {
            start();
            let _ = writer.write_all(&take_all().to_ne_bytes());
            // SAFETY: waits to be killed.
            unsafe { libc::pause() };
        }
        start();
        let (own, mut other) = (take_all(), [0; 8]);
        reader.read_exact(&mut other).unwrap();
        assert_eq!(own + u64::from_ne_bytes(other), GRANULES);
        assert_eq!(used_bytes(), GRANULES as usize * GRANULE);
        // SAFETY: ends the own child.
        unsafe { libc::kill(child, libc::SIGKILL) };
        // SAFETY: all bits may be zero.
        let mut told = unsafe { std::mem::zeroed() };
        let how = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: waits until it has ended, which leaves its status.
        unsafe { libc::waitid(libc::P_PID, child.cast_unsigned(), &raw mut told, how) };
        assert_eq!(used_bytes(), own as usize * GRANULE);
        assert_eq!(own + take_all(), GRANULES);
        cu!(cuCtxSynchronize());
    });
}
