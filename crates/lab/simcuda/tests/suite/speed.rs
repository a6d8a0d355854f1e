//! What a call costs: allocators are timed on this driver, so it must cost next to nothing.

use crate::program::{GRANULE, access, create, cu, event, passes, reserve};
use std::ptr::null_mut;
use std::time::Instant;

/// Nanoseconds a call, of the best of several rounds.
fn time(calls: u32, mut body: impl FnMut()) -> u128 {
    let round = || {
        let start = Instant::now();
        (0..1000).for_each(|_| body());
        start.elapsed().as_nanos() / u128::from(1000 * calls)
    };
    std::iter::repeat_with(round).take(20).min().unwrap()
}

#[test]
fn a_call_costs_well_under_a_microsecond() {
    passes("", || {
        let event = event(2);
        let (address, handle) = (reserve(GRANULE), create(GRANULE));
        let events = time(2, || {
            cu!(cuEventRecord(event, null_mut()));
            cu!(cuEventQuery(event));
        });
        let plain = time(2, || {
            let mut address = 0;
            cu!(cuMemAlloc_v2(&mut address, GRANULE));
            cu!(cuMemFree_v2(address));
        });
        let mapped = time(3, || {
            cu!(cuMemMap(address, GRANULE, 0, handle, 0));
            cu!(cuMemSetAccess(address, GRANULE, &access(0), 1));
            cu!(cuMemUnmap(address, GRANULE));
        });
        println!("ns a call: events {events}, plain memory {plain}, mappings {mapped}");
        // Generous: the build may be a debug one of cudarc, on a busy machine.
        assert!(events.max(plain).max(mapped) < 2000, "{events} {plain} {mapped}");
    });
}
