//! The scenarios of the fault sweep: short programs that go through every part of the library. On
//! a device of 128 MiB, every request of every one of them is served if nothing fails.

use super::script::Script;
use crate::sim::MIB;

pub struct Scenario {
    pub name: &'static str,
    pub limit_bytes: Option<u64>,
    pub steps: fn(&mut Script<'_>),
}

const fn scenario(name: &'static str, steps: fn(&mut Script<'_>)) -> Scenario {
    Scenario { name, limit_bytes: None, steps }
}

pub const SCENARIOS: [Scenario; 11] = [
    scenario("growth on one stream", growth),
    scenario("small and large blocks mixed", mixed),
    scenario("reuse across streams", across),
    scenario("frees with uses", uses),
    scenario("a trim in the middle", trim),
    Scenario { name: "the limit", limit_bytes: Some(64 * MIB), steps: limit },
    scenario("a full device, all of it pending", full),
    scenario("streams that go", retire),
    scenario("a private pool", pool),
    scenario("growth in a capture", capture),
    scenario("memory in other processes", share),
];

fn growth(script: &mut Script<'_>) {
    let lane = script.lane();
    script.allocate("a", lane, 12 * MIB);
    script.allocate("b", lane, 5 * MIB);
    script.free("a");
    script.allocate("c", lane, 20 * MIB);
    script.free("b");
    script.allocate("d", lane, 30 * MIB);
}

fn mixed(script: &mut Script<'_>) {
    let lane = script.lane();
    script.allocate("small", lane, 700);
    script.allocate("large", lane, 9 * MIB);
    script.allocate("medium", lane, MIB);
    script.allocate("smaller", lane, 1);
    script.free("small");
    script.free("large");
    script.allocate("another", lane, 1500);
    script.free("smaller");
    script.free("medium");
    script.allocate("larger", lane, 24 * MIB);
}

fn across(script: &mut Script<'_>) {
    let (lane, other) = (script.lane(), script.lane());
    script.allocate("a", lane, 12 * MIB);
    script.allocate("b", lane, 700);
    script.work(lane, 500);
    script.free("a");
    script.free("b");
    script.allocate("c", other, 12 * MIB);
    script.allocate("d", other, 700);
    script.work(other, 500);
    script.free("c");
    script.allocate("e", lane, 12 * MIB);
    script.allocate("f", other, 8 * MIB);
}

fn uses(script: &mut Script<'_>) {
    let (lane, other, third) = (script.lane(), script.lane(), script.lane());
    for round in 0..2 {
        script.allocate("a", lane, 12 * MIB);
        script.allocate("b", lane, 700);
        script.use_on("a", other);
        script.use_on("a", third);
        script.use_on("b", third);
        script.work(other, 500);
        script.free("a");
        script.free("b");
        script.pass(round * 1000);
    }
    script.allocate("c", other, 12 * MIB);
}

fn trim(script: &mut Script<'_>) {
    let (lane, other) = (script.lane(), script.lane());
    script.allocate("kept", lane, 3 * MIB);
    script.allocate("a", lane, 12 * MIB);
    script.allocate("b", other, 16 * MIB);
    script.allocate("c", other, 700);
    script.use_on("a", other);
    script.work(other, 500);
    script.free("a");
    script.free("b");
    script.free("c");
    script.trim();
    script.allocate("d", other, 20 * MIB);
    script.allocate("e", lane, 700);
}

fn limit(script: &mut Script<'_>) {
    let (lane, other) = (script.lane(), script.lane());
    script.allocate("a", lane, 32 * MIB);
    script.allocate("b", other, 32 * MIB);
    script.use_on("b", lane);
    script.work(lane, 500);
    script.free("b");
    script.free("a");
    script.allocate("c", lane, 64 * MIB);
    script.free("c");
    script.allocate("d", other, 40 * MIB);
}

fn full(script: &mut Script<'_>) {
    let (lane, other) = (script.lane(), script.lane());
    script.allocate("a", lane, 60 * MIB);
    script.allocate("b", other, 60 * MIB);
    script.use_on("a", other);
    script.use_on("b", lane);
    script.work(lane, 2000);
    script.work(other, 1000);
    script.free("a");
    script.free("b");
    script.allocate("c", lane, 120 * MIB);
    script.free("c");
    script.allocate("d", other, 100 * MIB);
}

fn retire(script: &mut Script<'_>) {
    let lane = script.lane();
    for name in ["a", "b"] {
        let gone = script.lane();
        script.allocate(name, gone, 12 * MIB);
        script.allocate("used", lane, 3 * MIB);
        script.use_on("used", gone);
        script.work(gone, 300);
        script.free("used");
        script.retire(gone);
        script.pass(100);
    }
    script.free("a");
    script.allocate("c", lane, 12 * MIB);
    script.pass(1000);
    script.free("b");
    script.allocate("d", lane, 24 * MIB);
}

fn pool(script: &mut Script<'_>) {
    let (lane, other) = (script.lane(), script.lane());
    let pool = script.pool();
    script.allocate_in("a", pool, lane, 12 * MIB);
    script.allocate("b", lane, 12 * MIB);
    script.allocate_in("c", pool, lane, 700);
    script.use_on("a", other);
    script.free("a");
    script.free("b");
    script.trim();
    script.allocate_in("d", pool, lane, 12 * MIB);
    script.allocate_in("e", pool, other, 14 * MIB);
}

fn share(script: &mut Script<'_>) {
    let lane = script.lane();
    script.allocate("a", lane, 12 * MIB);
    script.allocate("b", lane, 700);
    script.share("a");
    script.share("b");
    script.free("a");
    script.trim();
    script.allocate("c", lane, 20 * MIB);
    script.share("c");
    script.share("b");
}

fn capture(script: &mut Script<'_>) {
    let (lane, other) = (script.lane(), script.lane());
    script.allocate("a", lane, 700);
    script.allocate("b", other, 12 * MIB);
    script.free("b");
    script.capture(lane, |script| {
        script.allocate("c", lane, 12 * MIB);
        script.allocate("d", lane, 3 * MIB);
        script.use_on("c", other);
        script.free("c");
        script.allocate("e", other, 20 * MIB);
        script.use_on("e", lane);
        script.free("e");
    });
    script.allocate("f", lane, 64 * MIB);
}
