//! Streams that are held, and copies beside them.

use std::thread;
use std::time::{Duration, Instant};

use drystone_cuda::CudaDevice;
use drystone_driver::{Call, CaptureStatus, Driver, ErrorCode, Handle, Hold, Stream};

use crate::faults::{clear_faults, fail, fail_once, is_simulated, keep_busy};
use crate::raw;
use crate::scenario::open_at;

const GRANULE: u64 = 2 << 20;

/// The first device, whose context is the thread's.
fn open_current() -> CudaDevice {
    let device = open_at(0);
    raw::set_current(raw::primary(0));
    device
}

/// Whether what another thread queues waits for what is held.
fn waits(device: &CudaDevice, hold: Hold, queue: impl FnOnce() + Send) {
    let (begun, pause) = (Instant::now(), Duration::from_millis(30));
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            queue();
            begun.elapsed()
        });
        thread::sleep(pause);
        device.let_go(hold);
        let waited = other.join().unwrap();
        // A copy to a device's memory is in the default stream's order, which is held, too. A
        // real driver may have taken the bytes already.
        assert!(waited >= pause / 2 || !is_simulated(), "{waited:?}");
    });
}

/// Memory of so many granules at an address.
fn mapped(device: &CudaDevice, granules: u64) -> (u64, Handle) {
    map(device, granules * GRANULE, device.create(granules * GRANULE).unwrap())
}

fn map(device: &CudaDevice, bytes: u64, handle: Handle) -> (u64, Handle) {
    let address = device.reserve(bytes, 0).unwrap();
    device.map(address, bytes, handle).unwrap();
    device.set_access(address, bytes).unwrap();
    (address, handle)
}

fn pattern(seed: u8) -> Vec<u8> {
    (0..4096_u32).map(|at| seed.wrapping_add((at % 251) as u8)).collect()
}

#[test]
fn memory_moves_behind_its_address_while_streams_are_held() {
    // A strict device ends the process where a call is made that waits for what is held.
    crate::scenario!(1, ",strict:true", || {
        let device = open_current();
        let streams = [raw::create_stream(), raw::create_stream()].map(Stream);
        let (home, old) = mapped(&device, 1);
        let mut others = vec![mapped(&device, 1); 3];
        match device.create_on_host(GRANULE) {
            Ok(handle) => others.push(map(&device, GRANULE, handle)),
            Err(error) => {
                assert!(!is_simulated(), "{error}");
                println!("skipped: no memory of the host: {error}");
            }
        }
        raw::write(home + 5000, &pattern(7));
        for (scratch, new) in others {
            let hold = device.hold(&streams).unwrap();
            device.copy(scratch, home, GRANULE).unwrap();
            device.finish_copies().unwrap();
            device.unmap(home, GRANULE).unwrap();
            device.map(home, GRANULE, new).unwrap();
            device.set_access(home, GRANULE).unwrap();
            device.let_go(hold);
            assert_eq!(raw::read(home + 5000, 4096), pattern(7));
            // And back again.
            let hold = device.hold(&streams).unwrap();
            device.unmap(home, GRANULE).unwrap();
            device.map(home, GRANULE, old).unwrap();
            device.set_access(home, GRANULE).unwrap();
            device.let_go(hold);
        }
        for stream in streams {
            device.synchronize_stream(stream).unwrap();
            raw::destroy_stream(stream.0);
        }
    });
}

#[test]
fn another_thread_waits_with_what_it_queues_until_streams_are_let_go() {
    crate::scenario!(1, "", || {
        let device = open_current();
        let stream = Stream(raw::create_stream());
        let (address, _) = mapped(&device, 1);
        let hold = device.hold(&[stream]).unwrap();
        waits(&device, hold, || {
            raw::set_current(raw::primary(0));
            raw::write(address, &pattern(3));
        });
        raw::destroy_stream(stream.0);
    });
}

#[test]
fn streams_are_not_held_where_mapping_memory_would_wait_for_them() {
    crate::scenario!(1, ",maps_under_hold:false", || {
        let device = open_current();
        let (begun, stream) = (Instant::now(), Stream(raw::create_stream()));
        let held = device.hold(&[stream]);
        let is_simulated = is_simulated();
        if is_simulated {
            let error = held.unwrap_err();
            assert_eq!((error.call, error.code), (Call::Hold, ErrorCode::NotSupported));
            assert!(
                begun.elapsed() < Duration::from_secs(3),
                "it is found out, and not waited for"
            );
        } else if let Ok(hold) = held {
            device.let_go(hold);
        }
        device.synchronize_stream(stream).unwrap();
        let (address, handle) = mapped(&device, 1);
        device.unmap(address, GRANULE).unwrap();
        device.release(handle).unwrap();
        raw::destroy_stream(stream.0);
    });
}

/// A move holds the default stream, and so does what finds out whether moves work.
#[test]
fn streams_are_not_held_where_mapping_memory_would_wait_for_the_default_one() {
    crate::scenario!(1, ",maps_under_default_hold:false,strict:true", || {
        let device = open_current();
        let stream = Stream(raw::create_stream());
        match device.hold(&[stream]) {
            Ok(hold) => {
                device.let_go(hold);
                assert!(!is_simulated());
            }
            Err(error) => assert_eq!(error.code, ErrorCode::NotSupported),
        }
        let (address, _) = mapped(&device, 1);
        raw::write(address, &pattern(5));
        assert_eq!(raw::read(address, 4096), pattern(5));
        raw::destroy_stream(stream.0);
    });
}

/// With as many streams that wait as the device has queues, a copy would never come to its turn.
#[test]
fn streams_are_held_only_where_copies_pass_by_them() {
    crate::scenario!(1, ",connections:4,strict:true", || {
        let device = open_current();
        let streams = [(); 5].map(|()| Stream(raw::create_stream()));
        // The default one is a third.
        device.let_go(device.hold(&streams[..2]).unwrap());
        for count in 3..=5 {
            match device.hold(&streams[..count]) {
                Ok(hold) => {
                    device.let_go(hold);
                    assert!(!is_simulated());
                }
                Err(error) => assert_eq!(error.code, ErrorCode::NotReady),
            }
            streams.iter().for_each(|&stream| device.synchronize_stream(stream).unwrap());
        }
        device.let_go(device.hold(&streams[..2]).unwrap());
        streams.iter().for_each(|stream| raw::destroy_stream(stream.0));
    });
}

/// That there are too many says nothing of the device: fewer are held again.
#[test]
fn more_streams_than_can_be_held_are_not() {
    crate::scenario!(1, "", || {
        let device = open_current();
        let streams: Vec<Stream> = (0..1022).map(|_| Stream(raw::create_stream())).collect();
        // With the default one.
        assert_eq!(device.hold(&streams).unwrap_err().code, ErrorCode::NotReady);
        match device.hold(&streams[1..]) {
            Ok(hold) => device.let_go(hold),
            Err(error) => assert!(!is_simulated(), "{error}"),
        }
        streams.iter().for_each(|stream| raw::destroy_stream(stream.0));
    });
}

/// The end of a hold lets those before it go, too, and each is about the streams of all devices: so
/// there is one at a time.
#[test]
fn a_hold_waits_for_another_to_end_but_not_for_ever() {
    crate::scenario!(2, "", || {
        let (first, second) = (open_current(), open_at(1));
        for device in [&first, &second] {
            let (hold, begun) = (first.hold(&[]).unwrap(), Instant::now());
            let error = device.hold(&[]).unwrap_err();
            assert_eq!((error.call, error.code), (Call::Hold, ErrorCode::NotReady));
            let pause = Duration::from_millis(10);
            assert!(begun.elapsed() > pause);
            let begun = Instant::now();
            thread::scope(|scope| {
                let next = scope.spawn(|| device.hold(&[]).map(|next| (next, begun.elapsed())));
                thread::sleep(pause);
                first.let_go(hold);
                let (next, waited) = next.join().unwrap().unwrap();
                assert!(waited >= pause);
                device.let_go(next);
            });
        }
    });
}

/// Each device may use the memory of each.
#[test]
fn streams_of_other_devices_stand_still_too() {
    crate::scenario!(2, "", || {
        let (device, _other) = (open_current(), open_at(1));
        if device.enable_peer_access(1).is_err() {
            return println!("skipped: these devices are not connected");
        }
        let (address, _) = mapped(&device, 1);
        raw::set_current(raw::primary(1));
        let created = Stream(raw::create_stream());
        for (stream, told) in [(Stream::DEFAULT, &[][..]), (created, &[created])] {
            let hold = device.hold(told).unwrap();
            assert_eq!(raw::current(), raw::primary(1));
            waits(&device, hold, || {
                raw::set_current(raw::primary(1));
                raw::write_on(address, &pattern(3), stream.0);
            });
        }
        // Nor is one held or broken that is captured.
        raw::begin_capture(created.0);
        assert_eq!(device.hold(&[created]).unwrap_err().call, Call::Hold);
        assert!(raw::end_capture(created.0));
        device.let_go(device.hold(&[created]).unwrap());
        raw::destroy_stream(created.0);
    });
}

/// Whoever uses a device: it need not be one whose memory was asked for.
#[test]
fn the_default_stream_of_a_device_that_nobody_opened_stands_still_too() {
    crate::scenario!(2, "", || {
        let device = open_current();
        let other = raw::primary(1);
        raw::set_current(other);
        let address = raw::malloc(GRANULE);
        let hold = device.hold(&[]).unwrap();
        waits(&device, hold, || {
            raw::set_current(other);
            raw::write_on(address, &pattern(3), Stream::DEFAULT.0);
        });
    });
}

/// What another device does is given some time to end, before anything stands still.
#[test]
fn other_devices_are_waited_for_before_streams_are_held() {
    crate::scenario!(2, "", || {
        let (device, other) = (open_current(), open_at(1));
        raw::set_current(raw::primary(1));
        let created = Stream(raw::create_stream());
        device.let_go(device.hold(&[created]).unwrap());
        // Longer than streams are waited for that are to be held.
        if keep_busy(1, created, 20_000_000) {
            device.let_go(device.hold(&[created]).unwrap());
            // On its own device it is not: who asks has waited for that.
            keep_busy(1, created, 20_000_000);
            assert_eq!(other.hold(&[created]).unwrap_err().code, ErrorCode::NotReady);
            keep_busy(1, created, 200_000_000);
            assert_eq!(device.hold(&[created]).unwrap_err().code, ErrorCode::NotReady);
        }
        other.synchronize_device().unwrap();
        device.let_go(device.hold(&[created]).unwrap());
        raw::destroy_stream(created.0);
    });
}

/// Where one device cannot do it, no device moves what that one may use.
#[test]
fn no_stream_is_held_where_another_device_cannot_hold_its_own() {
    crate::scenario!(2, "", || {
        let (device, other) = (open_current(), open_at(1));
        other.let_go(other.hold(&[]).unwrap());
        if fail(c"cuMemMap", 1, true, 801) {
            assert_eq!(device.hold(&[]).unwrap_err().code, ErrorCode::NotSupported);
            clear_faults();
            assert_eq!(other.hold(&[]).unwrap_err().code, ErrorCode::NotSupported);
        }
    });
}

/// Something that is held may be in the way of a copy: then all go on, and nothing has changed.
#[test]
fn copies_are_not_waited_for_without_an_end() {
    crate::scenario!(1, "", || {
        let device = open_current();
        let (address, _) = mapped(&device, 1);
        let hold = device.hold(&[]).unwrap();
        device.copy(address, address + 512, 512).unwrap();
        if fail(c"cuStreamQuery", 1, true, 600) {
            let error = device.finish_copies().unwrap_err();
            assert_eq!((error.call, error.code), (Call::FinishCopies, ErrorCode::NotReady));
            clear_faults();
        }
        device.let_go(hold);
        device.finish_copies().unwrap();
    });
}

#[test]
fn a_stream_that_is_captured_is_neither_held_nor_broken() {
    crate::scenario!(1, "", || {
        let device = open_current();
        let stream = Stream(raw::create_stream());
        raw::begin_capture(stream.0);
        let error = device.hold(&[stream]).unwrap_err();
        assert_eq!(error.call, Call::Hold);
        assert_eq!(device.capture_status(stream).unwrap(), CaptureStatus::Active);
        assert!(raw::end_capture(stream.0));
        device.let_go(device.hold(&[stream]).unwrap());
        raw::destroy_stream(stream.0);
    });
}

#[test]
fn a_hold_that_fails_holds_nothing() {
    crate::scenario!(1, "", || {
        let device = open_current();
        let stream = Stream(raw::create_stream());
        device.let_go(device.hold(&[stream]).unwrap());
        for nth in 1..=2 {
            if fail_once(c"cuStreamBatchMemOp", nth) {
                let error = device.hold(&[stream]).unwrap_err();
                assert_eq!((error.call, error.code), (Call::Hold, ErrorCode::Other(999)));
            }
            device.synchronize_stream(stream).unwrap();
            device.let_go(device.hold(&[stream]).unwrap());
        }
        let (address, _) = mapped(&device, 1);
        if fail_once(c"cuMemcpyAsync", 1) {
            assert_eq!(device.copy(address, address + 512, 512).unwrap_err().call, Call::Copy);
        }
        if fail_once(c"cuStreamSynchronize", 1) {
            device.copy(address, address + 512, 512).unwrap();
            assert_eq!(device.finish_copies().unwrap_err().call, Call::FinishCopies);
        }
        device.finish_copies().unwrap();
        raw::destroy_stream(stream.0);
    });
}
