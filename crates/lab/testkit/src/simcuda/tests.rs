//! The client against the simulated driver, where there is one; and where there is none.

use super::{NotSimulated, Refused, SimCuda, read};
use std::cell::Cell;
use std::ptr::null_mut;

/// The simulated driver, or a plain word that there is none.
fn simulated() -> Option<SimCuda> {
    let found = SimCuda::find();
    if std::env::var_os("DRYSTONE_SIMCUDA").is_some() {
        return Some(found.unwrap());
    }
    found.inspect_err(|error| eprintln!("skipped: {error}")).ok()
}

#[test]
fn every_control_function_answers() {
    let Some(sim) = simulated() else { return };
    sim.reset_device(0, "memory:64MiB,oracle:true").unwrap();
    let start = sim.now_ns(0);
    sim.launch(0, null_mut(), 500).unwrap();
    sim.advance_ns(0, 70).unwrap();
    assert_eq!(sim.now_ns(0), start + 70);
    assert_eq!((sim.calls(0), sim.physical_bytes(0), sim.peak_physical_bytes(0)), (0, 0, 0));
    assert_eq!(sim.live_objects(0), "");
    sim.check_use(0, 0x1000, null_mut()).unwrap();
    sim.check_alloc(0, 0x1001, 8, null_mut()).unwrap();
    sim.check_free(0, 0x1001).unwrap();
    // What no kernel can reach is told at its start, and at its end, too.
    assert_eq!(sim.violation_count(0), 4, "{:?}", sim.violations(0));
    assert_eq!(sim.violations(0).len(), 4, "{:?}", sim.violations(0));
    assert!(sim.violations(0)[0].contains("0x1000"), "{:?}", sim.violations(0));
    sim.fail(0, "cuMemCreate", 1, false, 2).unwrap();
    assert_eq!(sim.faults_fired(0), 0);
    sim.clear_faults(0).unwrap();
    sim.count("cublasSgemm").unwrap();
    assert!(sim.stats_json().contains("\"cublasSgemm\": 1"));
    sim.lose_context(0).unwrap();
    sim.begin_exit(0).unwrap();
    // From here on its time is its own.
    sim.reset_device(0, "own_clock:true").unwrap();
    assert_eq!(sim.now_ns(0), 0);
    sim.reset_device(0, "").unwrap();
    assert_eq!(sim.violation_count(0), 0);
}

#[test]
fn what_cannot_be_is_refused() {
    let Some(sim) = simulated() else { return };
    let no_device = Err(Refused { function: "simcuda_advance_ns", status: 101 });
    assert_eq!(sim.advance_ns(77, 1), no_device);
    assert_eq!(sim.reset_device(0, "memroy:1GiB").unwrap_err().status, 1);
    assert_eq!(sim.reset_device(0, "a\0b").unwrap_err().status, 1);
    // Too late, once there are devices.
    assert_eq!(sim.configure("memory:1GiB").unwrap_err().status, 1);
    assert_eq!(sim.calls(77), 0);
    assert_eq!(sim.launch(0, 0x1234 as *mut _, 1).unwrap_err().status, 400);
}

#[test]
fn a_text_that_grows_between_two_questions_is_read_whole() {
    let asked = Cell::new(0);
    let text = read(|out, room| {
        asked.set(asked.get() + 1);
        let whole: &[u8] = if asked.get() == 1 { b"ab" } else { b"abcd" };
        for (index, &byte) in whole.iter().take((room as usize).saturating_sub(1)).enumerate() {
            // SAFETY: at most `room` bytes are written.
            unsafe { out.wrapping_add(index).write(byte as _) };
        }
        whole.len() as u64
    });
    assert_eq!((text.as_str(), asked.get()), ("abcd", 3));
}

#[test]
fn a_library_that_is_no_simulated_driver_is_refused_by_name() {
    // SAFETY: the C library is loaded already.
    let library = unsafe { libloading::os::unix::Library::new("libc.so.6") }.unwrap();
    let error = SimCuda::from_library(&library).unwrap_err();
    assert!(matches!(error, NotSimulated::Real { missing: "simcuda_configure" }), "{error}");
}
