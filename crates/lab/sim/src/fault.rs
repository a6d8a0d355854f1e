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
pub struct FaultPlan<C = Call, E = ErrorCode> {
    /// What fails: a method.
    pub call: C,
    /// Which of its calls, counted from 1 since the plan was installed.
    pub nth: u64,
    /// Once, or from then on.
    pub mode: FaultMode,
    /// What the caller gets to see.
    pub code: E,
}

/// The plans installed on a device, each with how many calls it has seen.
#[derive(Debug)]
pub struct Faults<C = Call, E = ErrorCode> {
    installed: Vec<(FaultPlan<C, E>, u64)>,
    fired: u64,
}

impl<C, E> Default for Faults<C, E> {
    fn default() -> Self {
        Self { installed: Vec::new(), fired: 0 }
    }
}

impl<C, E: Copy> Faults<C, E> {
    /// Installs one more.
    pub fn install(&mut self, plan: FaultPlan<C, E>) {
        self.installed.push((plan, 0));
    }

    /// Forgets them all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// How many calls have failed by plan since they were last cleared.
    pub const fn fired(&self) -> u64 {
        self.fired
    }

    /// Counts a call in every plan; the first plan whose turn it is decides.
    ///
    /// Errors: its code.
    pub fn check<Q: ?Sized>(&mut self, call: &Q) -> Result<(), E>
    where
        C: PartialEq<Q>,
    {
        let mut code = None;
        for (plan, seen) in self.installed.iter_mut().filter(|(plan, _)| plan.call == *call) {
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
        (0..calls).map(|_| faults.check(&Call::Create).is_err()).collect()
    }

    #[test]
    fn once_hits_the_nth_call_alone_and_forever_all_from_there() {
        let mut faults = Faults::default();
        faults.install(plan(2, FaultMode::Once));
        assert_eq!(faults.check(&Call::Map), Ok(()), "another method is not counted");
        assert_eq!(outcomes(&mut faults, 4), [false, true, false, false]);
        assert_eq!(faults.fired(), 1);
        faults.clear();
        faults.install(plan(2, FaultMode::Forever));
        assert_eq!(outcomes(&mut faults, 4), [false, true, true, true]);
        assert_eq!(faults.fired(), 3);
    }

    #[test]
    fn two_plans_count_on_their_own() {
        let mut faults = Faults::default();
        faults.install(plan(1, FaultMode::Once));
        faults.install(plan(3, FaultMode::Once));
        assert_eq!(outcomes(&mut faults, 4), [true, false, true, false]);
    }
}
