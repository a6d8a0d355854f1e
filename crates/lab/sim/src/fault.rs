//! [`FaultPlan`]: makes the n-th call of a method fail, once or from then on.
//!
//! Invariant: a fault fires before the call has changed anything.

use drystone_driver::{Call, ErrorCode};

/// How long a fault lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultMode {
    /// The n-th call alone fails.
    Once,
    /// The n-th call and every later one fail.
    Forever,
}

/// One planned failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// The method that fails.
    pub call: Call,
    /// Which of its calls, counted from 1 since the plan was installed.
    pub nth: u64,
    /// Once, or from then on.
    pub mode: FaultMode,
    /// What the caller gets to see.
    pub code: ErrorCode,
}

/// The plans installed on a device.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    installed: Vec<Installed>,
    fired: u64,
}

#[derive(Debug)]
struct Installed {
    plan: FaultPlan,
    seen: u64,
}

impl Faults {
    pub(crate) fn install(&mut self, plan: FaultPlan) {
        self.installed.push(Installed { plan, seen: 0 });
    }

    pub(crate) fn clear(&mut self) {
        self.installed.clear();
        self.fired = 0;
    }

    /// How many calls have failed by plan since the plans were last cleared.
    pub(crate) const fn fired(&self) -> u64 {
        self.fired
    }

    /// Counts a call in every plan; the first plan whose turn it is decides.
    pub(crate) fn check(&mut self, call: Call) -> Result<(), ErrorCode> {
        let mut code = None;
        for Installed { plan, seen } in &mut self.installed {
            if plan.call != call {
                continue;
            }
            *seen += 1;
            let strikes = match plan.mode {
                FaultMode::Once => *seen == plan.nth,
                FaultMode::Forever => *seen >= plan.nth,
            };
            if strikes {
                code = code.or(Some(plan.code));
            }
        }
        self.fired += u64::from(code.is_some());
        code.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::{FaultMode, FaultPlan, Faults};
    use drystone_driver::{Call, ErrorCode};

    fn plan(nth: u64, mode: FaultMode) -> FaultPlan {
        FaultPlan { call: Call::Create, nth, mode, code: ErrorCode::OutOfMemory }
    }

    fn outcomes(faults: &mut Faults, calls: usize) -> Vec<bool> {
        (0..calls).map(|_| faults.check(Call::Create).is_err()).collect()
    }

    #[test]
    fn once_hits_the_nth_call_alone_and_forever_all_from_there() {
        let mut faults = Faults::default();
        faults.install(plan(2, FaultMode::Once));
        assert_eq!(faults.check(Call::Map), Ok(()), "another method is not counted");
        assert_eq!(outcomes(&mut faults, 4), [false, true, false, false]);
        assert_eq!(faults.fired(), 1);
        faults.clear();
        faults.install(plan(2, FaultMode::Forever));
        assert_eq!(outcomes(&mut faults, 4), [false, true, true, true]);
        assert_eq!(faults.fired(), 3);
        faults.clear();
        assert_eq!(outcomes(&mut faults, 2), [false, false]);
    }

    #[test]
    fn two_plans_count_on_their_own() {
        let mut faults = Faults::default();
        faults.install(plan(1, FaultMode::Once));
        faults.install(plan(3, FaultMode::Once));
        assert_eq!(outcomes(&mut faults, 4), [true, false, true, false]);
    }
}
