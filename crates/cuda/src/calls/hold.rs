//! Streams that wait for a word in memory, and copies. What the driver lacks of these it refuses.

use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU32;

use super::table::Operation;
use super::{Cuda, handle, pointer};
use crate::failure::Failure;

/// `CU_STREAM_MEM_OP_WAIT_VALUE_32`; with no flag until the word is at least the value, in a circle
/// of all numbers (`CU_STREAM_WAIT_VALUE_GEQ`).
const WAIT: u64 = 1;
/// `CU_STREAM_MEM_OP_WRITE_VALUE_32`; with no flag after all memory that the stream wrote before.
const WRITE: u64 = 2;
/// `CU_MEMHOSTALLOC_PORTABLE`: for streams of any context.
const PORTABLE: u32 = 1;
/// `CU_STREAM_NON_BLOCKING`
const NON_BLOCKING: u32 = 1;

fn operation(kind: u64, word: *const AtomicU32, number: u32) -> Operation {
    [kind, word.expose_provenance() as u64, number.into(), 0, 0, 0]
}

impl Cuda {
    /// Words of pinned memory that the device writes and reads, all 0. Never freed.
    pub(crate) fn words(&self, count: usize) -> Result<NonNull<AtomicU32>, Failure> {
        let (mut words, bytes) = (ptr::null_mut(), count * size_of::<AtomicU32>());
        // SAFETY: writes one address. From CUDA 4 on it is the same for the device.
        self.check(unsafe { (self.table.cuMemHostAlloc)(&raw mut words, bytes, PORTABLE) })?;
        let words = NonNull::new(words).ok_or(Failure { number: 2, name: "" })?;
        // SAFETY: it is all of the allocation, which nobody else knows yet.
        unsafe { words.cast::<u8>().write_bytes(0, bytes) };
        Ok(words.cast())
    }

    /// A stream that the default one does not wait for.
    pub(crate) fn create_stream(&self) -> Result<u64, Failure> {
        let mut stream = ptr::null_mut();
        // SAFETY: writes one handle.
        self.check(unsafe { (self.table.cuStreamCreate)(&raw mut stream, NON_BLOCKING) })?;
        Ok(handle(stream))
    }

    pub(crate) fn destroy_stream(&self, stream: u64) -> Result<(), Failure> {
        // SAFETY: it is one of this crate's own, and not used again.
        self.check(unsafe { (self.table.cuStreamDestroy_v2)(pointer(stream)) })
    }

    /// Whether the context's default stream and this one wait for each other.
    pub(crate) fn is_blocking(&self, stream: u64) -> Result<bool, Failure> {
        let mut flags = 0;
        // SAFETY: writes one number.
        self.check(unsafe { (self.table.cuStreamGetFlags)(pointer(stream), &raw mut flags) })?;
        Ok(flags & NON_BLOCKING == 0)
    }

    /// Whether all that was queued on a stream is done.
    pub(crate) fn is_idle(&self, stream: u64) -> Result<bool, Failure> {
        // SAFETY: no pointer is passed.
        match self.check(unsafe { (self.table.cuStreamQuery)(pointer(stream)) }) {
            Err(failure) if failure.number == Failure::NOT_READY => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// Lets a stream write a number into a word, and then wait until another is at least that. One
    /// call: nothing that others queue comes between.
    pub(crate) fn queue_hold(
        &self,
        stream: u64,
        arrived: *const AtomicU32,
        open: *const AtomicU32,
        number: u32,
    ) -> Result<(), Failure> {
        let wait = operation(WAIT, open, number);
        self.queue_operations(stream, &[operation(WRITE, arrived, number), wait])
    }

    /// Lets a stream write a number into a word.
    pub(crate) fn queue_write(
        &self,
        stream: u64,
        word: *const AtomicU32,
        number: u32,
    ) -> Result<(), Failure> {
        self.queue_operations(stream, &[operation(WRITE, word, number)])
    }

    fn queue_operations(&self, stream: u64, operations: &[Operation]) -> Result<(), Failure> {
        let (count, first) = (operations.len() as u32, operations.as_ptr());
        // SAFETY: reads them; their words are pinned memory that is never freed.
        self.check(unsafe { (self.table.cuStreamBatchMemOp_v2)(pointer(stream), count, first, 0) })
    }

    pub(crate) fn copy(&self, to: u64, from: u64, bytes: u64, on: u64) -> Result<(), Failure> {
        // SAFETY: the caller holds whoever may use either side.
        self.check(unsafe { (self.table.cuMemcpyAsync)(to, from, bytes as usize, pointer(on)) })
    }
}
