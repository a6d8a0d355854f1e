//! Every call of the driver trait, made with arguments that no device would accept.

use drystone_driver::{
    Call, CaptureMode, Descriptor, Driver, DriverError, Event, Handle, MemoryPool,
    MemoryPoolConfig, Stream,
};

/// A descriptor of no device's memory.
fn nothing() -> Descriptor {
    std::fs::File::open("/dev/null").unwrap().into()
}

/// What every call answers where none may reach the driver: the arguments are nonsense.
pub(crate) fn answers(device: &dyn Driver) -> Vec<(Call, Option<DriverError>)> {
    const JUNK: u64 = 0x0bad_f00d_0000;
    let (stream, event) = (Stream(JUNK), Event(JUNK));
    let (handle, pool) = (Handle(JUNK), MemoryPool(JUNK));
    let config = MemoryPoolConfig::default();
    let answer = |call| match call {
        Call::MemoryInfo => device.memory_info().err(),
        Call::Reserve => device.reserve(JUNK, 0).err(),
        Call::Unreserve => device.unreserve(JUNK, JUNK).err(),
        Call::Create => device.create(JUNK).err(),
        Call::CreateOnHost => device.create_on_host(JUNK).err(),
        Call::Release => device.release(handle).err(),
        Call::Map => device.map(JUNK, JUNK, handle).err(),
        Call::SetAccess => device.set_access(JUNK, JUNK).err(),
        Call::Unmap => device.unmap(JUNK, JUNK).err(),
        Call::Export => device.export(handle).err(),
        Call::Import => device.import(&nothing()).err(),
        Call::Malloc => device.malloc(JUNK).err(),
        Call::Free => device.free(JUNK).err(),
        Call::CreateMemoryPool => device.create_memory_pool(&config).err(),
        Call::DestroyMemoryPool => device.destroy_memory_pool(pool).err(),
        Call::TrimMemoryPool => device.trim_memory_pool(pool, 0).err(),
        Call::MemoryPoolUsage => device.memory_pool_usage(pool).err(),
        Call::MallocAsync => device.malloc_async(pool, JUNK, stream).err(),
        Call::FreeAsync => device.free_async(JUNK, stream).err(),
        Call::CreateEvent => device.create_event().err(),
        Call::DestroyEvent => device.destroy_event(event).err(),
        Call::Record => device.record(event, stream).err(),
        Call::Query => device.query(event).err(),
        Call::Wait => device.wait(stream, event).err(),
        Call::SynchronizeEvent => device.synchronize_event(event).err(),
        Call::SynchronizeStream => device.synchronize_stream(stream).err(),
        Call::SynchronizeDevice => device.synchronize_device().err(),
        Call::StreamUid => device.stream_uid(stream).err(),
        Call::CaptureStatus => device.capture_status(stream).err(),
        Call::ExchangeCaptureMode => device.exchange_capture_mode(CaptureMode::Relaxed).err(),
        Call::EnablePeerAccess => device.enable_peer_access(1).err(),
        Call::Hold => device.hold(&[stream]).err(),
        Call::Copy => device.copy(JUNK, JUNK, JUNK).err(),
        Call::FinishCopies => device.finish_copies().err(),
    };
    Call::ALL.into_iter().map(|call| (call, answer(call))).collect()
}
