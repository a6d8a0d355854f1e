//! Processor time of the calling thread, so that other work on the machine is not counted.

/// Nanoseconds of processor time this thread has used.
#[cfg(unix)]
pub(super) fn thread_cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (now.tv_sec, now.tv_nsec);
    seconds.unsigned_abs() * 1_000_000_000 + nanoseconds.unsigned_abs()
}

/// Nanoseconds of wall time: the nearest thing where threads have no clock of their own.
#[cfg(not(unix))]
pub(super) fn thread_cpu_ns() -> u64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    #[test]
    fn work_moves_the_clock_and_sleep_hardly_does() {
        let start = super::thread_cpu_ns();
        let mut value = 1u64;
        while super::thread_cpu_ns() - start < 1_000_000 {
            value = std::hint::black_box(value.wrapping_mul(3));
        }
        assert!(super::thread_cpu_ns() > start);
    }
}
