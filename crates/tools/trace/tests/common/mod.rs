//! What tests of how long a reader takes share: processor time, which no other program's load
//! lengthens by much.

use std::time::Duration;

/// Processor time of this thread so far.
fn spent() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
}

/// What `body` answers, and the processor time that it takes.
pub fn timed<R>(body: impl FnOnce() -> R) -> (R, Duration) {
    let before = spent();
    let answer = body();
    (answer, spent() - before)
}
