//! Process exit and forked children: no call reaches the driver, every answer is an error.
#![cfg(unix)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use drystone_cuda::{CudaDevice, CudaOptions, OpenError, device_count};
use drystone_driver::{Driver, ErrorCode, MemoryPoolConfig};

use crate::calls::answers;
use crate::scenario::open;

static DEVICE: OnceLock<CudaDevice> = OnceLock::new();

/// Whether every call answers with `code`, and opening with `refusal`.
fn refuses_all(device: &CudaDevice, code: ErrorCode, refusal: &OpenError) -> bool {
    let is_refused = answers(device)
        .into_iter()
        .all(|(call, error)| error.is_some_and(|error| error.call == call && error.code == code));
    is_refused
        && CudaDevice::open(0, &CudaOptions::default()).err().as_ref() == Some(refusal)
        && device_count().err().as_ref() == Some(refusal)
        && device.info().ordinal == 0
}

/// Forks; true if the child found everything refused, within ten seconds.
fn child_refuses_all(device: &CudaDevice) -> bool {
    // SAFETY: the child makes no call of CUDA, and ends without running what the parent set up.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a child that hangs is ended by the alarm, and counts as failed.
        unsafe { libc::alarm(10) };
        let code = ErrorCode::NotInitialized;
        let is_refused = refuses_all(device, code, &OpenError::Forked);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if is_refused { 42 } else { 1 }) };
    }
    assert!(child > 0, "cannot fork");
    let mut status = 0;
    // SAFETY: waits for the child, writes one number.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    waited == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 42
}

#[test]
fn b56_p6_a_forked_child_is_refused_every_call_and_the_parent_none() {
    crate::scenario!(1, "", || {
        let device = open();
        assert!(child_refuses_all(&device));
        let address = device.malloc(512).unwrap();
        device.free(address).unwrap();
    });
}

#[test]
fn b56_p6_a_child_forked_while_others_hold_locks_does_not_hang() {
    crate::scenario!(1, "", || {
        let device = open();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
                    device.stream_uid(drystone_driver::Stream::DEFAULT).unwrap();
                    device.destroy_memory_pool(pool).unwrap();
                    open();
                }
            });
            let all = (0..50).all(|_| child_refuses_all(&device));
            is_done.store(true, Ordering::Relaxed);
            assert!(all);
        });
    });
}

/// Registered before the device is opened, so it runs after the crate's own handler.
extern "C" fn late() {
    let device = DEVICE.get().unwrap();
    if !refuses_all(device, ErrorCode::Deinitialized, &OpenError::Exiting) {
        // SAFETY: ends the process at once, as failed.
        unsafe { libc::_exit(17) };
    }
    println!("refused at exit");
}

#[test]
fn b55_p6_no_call_is_made_once_process_exit_began() {
    let said = crate::scenario!(1, "", || {
        // SAFETY: the handler touches a static only.
        unsafe { libc::atexit(late) };
        let device = DEVICE.get_or_init(open);
        let address = device.malloc(512).unwrap();
        device.free(address).unwrap();
        // Other threads may still be calling when the process exits.
        std::thread::spawn(|| while device_count().is_ok() {});
    });
    assert!(said.is_none_or(|said| said.contains("refused at exit")), "no handler ran");
}
