//! The program's events, waits and streams, for who sees them to tell: memory that is ordered by
//! them serves other streams at no cost, and live memory moves where all streams are known. None of
//! it has to be told.

use std::ffi::{c_int, c_void};

use drystone::driver::Stream;
use drystone::seen;
use drystone_process::events;

use crate::barrier::answer;
use crate::status::Status;
use crate::{process, registry};

/// Says that the program has recorded an event on a stream (a `cudaStream_t`): what was freed there
/// before serves streams that wait for the event. An event of Drystone's is recorded beside it,
/// where anything was freed since the last. A device of -1 says that the stream is captured.
///
/// Statuses: EXITING, FORKED. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_event_recorded(
    device: c_int,
    event: *const c_void,
    stream: *const c_void,
) -> Status {
    answer(|| {
        process::check()?;
        events::recorded(device, event.addr(), stream.addr() as u64);
        Ok(())
    })
}

/// Says that a stream, which is not captured, was made to wait for an event
/// (`cudaStreamWaitEvent`). It then waits for Drystone's event beside that one, too.
///
/// Statuses: EXITING, FORKED. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_event_waited(
    device: c_int,
    event: *const c_void,
    stream: *const c_void,
) -> Status {
    answer(|| {
        process::check()?;
        events::waited(device, event.addr(), stream.addr() as u64);
        Ok(())
    })
}

/// Says that an event is destroyed.
///
/// Statuses: EXITING, FORKED. Any thread. Makes no driver call.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_event_destroyed(event: *const c_void) -> Status {
    answer(|| {
        process::check()?;
        events::destroyed(event.addr());
        Ok(())
    })
}

/// Says that the host is about to wait for a device (`cudaDeviceSynchronize`). Records an event on
/// each stream that has free memory: once the wait is over, that is known to be anybody's. A device
/// that is not in use has none.
///
/// Statuses: EXITING, FORKED. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_synchronizing(device: c_int) -> Status {
    answer(|| {
        process::check()?;
        if let Some(device) = registry::find(device) {
            device.allocator.note_synchronizing();
        }
        Ok(())
    })
}

/// Says that a stream was created on a device, which lives as long as the process: it stands still
/// while live memory moves.
///
/// Statuses: INVALID_DEVICE, EXITING, FORKED. Any thread. Makes no driver call.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_stream_created(device: c_int, stream: *const c_void) -> Status {
    answer(|| {
        process::check()?;
        registry::check(device)?;
        seen::created(Stream(stream.addr() as u64), device.cast_unsigned());
        Ok(())
    })
}

/// Says that every stream which may use Drystone's memory is told of by `drystone_stream_created`
/// from now on, or by a request or a use, and none has been there before. From then on live memory
/// may get other memory behind its addresses, by itself: see `docs/inside/remap.md`. A stream that
/// was met otherwise, and may end silently, forbids it for as long as it is known. Only the
/// preloaded library sees copies, memsets and questions about addresses: beside `libdrystone.so`
/// alone no other thread may make any while a request is under way.
///
/// Statuses: EXITING, FORKED. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_know_all_streams() -> Status {
    answer(|| {
        process::check()?;
        registry::know_all_streams();
        Ok(())
    })
}
