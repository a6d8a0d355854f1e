//! [`SimDevice`]: the device as its users hold it, and the one way into its lock.

use crate::clock::Clock;
use crate::config::SimConfig;
use crate::counter::Counters;
use crate::fault::FaultPlan;
use crate::held::{Gate, Moved, PATIENCE};
use crate::legality::Rule;
use crate::state::State;
use drystone_driver::{Call, DriverError, ErrorCode, Stream};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;

/// A simulated GPU. Clones are the same device.
#[derive(Clone, Debug)]
pub struct SimDevice {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: Arc<SimConfig>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) counters: Counters,
    pub(crate) state: Mutex<State>,
    /// Told when streams are let go.
    pub(crate) let_go: Condvar,
}

/// How many objects of each kind the device still has. All zero after a clean teardown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveObjects {
    /// Reserved address ranges.
    pub reservations: usize,
    /// Physical handles not released.
    pub handles: usize,
    /// Mappings, with or without access.
    pub mappings: usize,
    /// Plain allocations.
    pub plain_allocations: usize,
    /// Memory pools.
    pub memory_pools: usize,
    /// Stream-ordered allocations.
    pub async_allocations: usize,
    /// Events.
    pub events: usize,
}

impl LiveObjects {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Methods of the device that are one of what is behind its lock, or of a part of that.
macro_rules! locked {
    ($($(#[$doc:meta])*
    fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $($path:ident).+;)*) => {
        impl $crate::device::SimDevice {
            $($(#[$doc])*
            pub fn $name(&self, $($argument: $type),*) $(-> $result)? {
                self.inner.state.lock().$($path).+($($argument),*)
            })*
        }
    };
}
pub(crate) use locked;

impl SimDevice {
    /// A fresh device.
    pub fn new(config: SimConfig) -> Self {
        let clock = Arc::new(Clock::new(config.is_real_time));
        Self::with_clock(config, clock)
    }

    /// A fresh device in the process of another: both go by one host clock, and streams of one can
    /// wait for events of the other.
    pub fn beside(config: SimConfig, other: &SimDevice) -> Self {
        Self::with_clock(config, Arc::clone(&other.inner.clock))
    }

    fn with_clock(config: SimConfig, clock: Arc<Clock>) -> Self {
        let config = Arc::new(config);
        let mut state = State::new(Arc::clone(&config), Arc::clone(&clock));
        if let Some((host, own_bytes)) = state.memory.supply.host() {
            host.tell(own_bytes);
        }
        let state = Mutex::new(state);
        let (counters, let_go) = (Counters::default(), Condvar::new());
        Self { inner: Arc::new(Inner { config, clock, counters, state, let_go }) }
    }

    /// The device, for work on a stream: a thread that launches on one that is held waits, as for
    /// room in a queue that is full.
    pub(crate) fn lock_for(&self, stream: Stream) -> MutexGuard<'_, State> {
        let mut state = self.inner.state.lock();
        while state.is_held(stream) {
            // What a gate waits for may come silently.
            self.inner.let_go.wait_for(&mut state, Duration::from_micros(100));
        }
        state
    }

    /// Holds streams until a gate opens, which they come to only if they are idle soon: whether
    /// they have.
    /// Errors: `InvalidHandle`, `CaptureUnsupported` (one is captured).
    pub fn hold_until(&self, streams: Vec<Stream>, gate: Gate) -> Result<bool, ErrorCode> {
        let comes_by = self.comes_by(&streams, PATIENCE);
        let mut state = self.inner.state.lock();
        let has_arrived = comes_by && state.arrive(&streams)?;
        state.keep(streams, Some(gate));
        Ok(has_arrived)
    }

    /// What a stream writes alone, it writes once it has drained: whether that is before anybody
    /// who waits for it gives up.
    /// Errors: `InvalidHandle`, `CaptureUnsupported` (it is captured).
    pub fn drains(&self, stream: Stream) -> Result<bool, ErrorCode> {
        let (most, streams) = (Duration::from_millis(50), [stream]);
        let comes_by = self.comes_by(&streams, most);
        Ok(comes_by && self.inner.state.lock().drain(&streams, most)?)
    }

    /// Waits until no stream is held, as calls may that create or destroy: whether a driver lets
    /// them wait for streams, nobody says. A violation by the thread that holds some.
    pub fn wait_for_held(&self, function: &'static str) {
        let mut state = self.inner.state.lock();
        while state.waits_for_held(function) {
            self.inner.let_go.wait_for(&mut state, Duration::from_micros(100));
        }
    }

    /// Bytes are copied between two ranges that are mapped and open, in no stream's order.
    pub fn note_copy(&self, to: u64, from: u64, bytes: u64) {
        // Of other memory there is nothing to note.
        let _ = self.inner.state.lock().note_copy(to, from, bytes);
    }

    /// What moves of memory have taken of the device so far.
    pub fn moved(&self) -> Moved {
        self.inner.state.lock().moved
    }

    /// What the device was built from.
    pub fn config(&self) -> &SimConfig {
        &self.inner.config
    }

    /// Physical memory in use, in bytes.
    pub fn physical_bytes(&self) -> u64 {
        let mut state = self.inner.state.lock();
        state.look_at_exports();
        state.memory.supply.used_bytes()
    }

    /// What has not been given back.
    pub fn live_objects(&self) -> LiveObjects {
        let state = self.inner.state.lock();
        LiveObjects {
            reservations: state.memory.vm.reservations(),
            handles: state.memory.vm.handles(),
            mappings: state.memory.vm.mappings(),
            plain_allocations: state.memory.plain.len(),
            memory_pools: state.memory.pools.len(),
            async_allocations: state.memory.pools.live(),
            events: state.events.len(),
        }
    }

    /// How many driver calls were made, refused ones included; questions
    /// ([`Call::is_query`]) are not counted.
    pub fn calls(&self) -> u64 {
        self.inner.counters.calls()
    }

    /// How many calls of one kind were made, refused ones included.
    pub fn calls_of(&self, call: Call) -> u64 {
        self.inner.counters.calls_of(call)
    }

    /// Over how many bytes the calls of one kind were made. Set access and unmap count 2 MiB for
    /// each mapping in their range, as they are priced.
    pub fn bytes_of(&self, call: Call) -> u64 {
        self.inner.counters.bytes_of(call)
    }

    /// What the calls so far cost by the device's cost table, in microseconds. What a call waited
    /// for is not in it.
    pub fn driver_time_us(&self) -> f64 {
        self.inner.counters.time_us(&self.inner.config.costs)
    }

    /// Makes one driver call: counts it, gives faults their chance, and reports what it refuses.
    pub(crate) fn call<T>(
        &self,
        call: Call,
        bytes: u64,
        address: u64,
        body: impl FnOnce(&mut State) -> Result<T, ErrorCode>,
    ) -> Result<T, DriverError> {
        let mut state = self.inner.state.lock();
        let priced_bytes = state.priced_bytes(call, bytes, address);
        self.inner.counters.count(call, priced_bytes);
        let result = match state.enter(call, priced_bytes) {
            Err(code) => Err(code),
            Ok(()) => {
                let rule = Rule::of(call);
                // The others look first whether what they are about is captured itself.
                let is_first = !rule.breaks_its_own;
                let permitted = if is_first { state.permit(rule) } else { Ok(()) };
                let result = permitted.and_then(|()| body(&mut state));
                result.inspect_err(|&code| state.note_refusal(call, code))
            }
        };
        if let Some((host, own_bytes)) = state.memory.supply.host() {
            host.tell(own_bytes);
        }
        result.map_err(|code| DriverError::new(call, code).with_figures(bytes, address))
    }
}

locked! {
    /// Whether streams are held that calls wait for which map memory.
    fn is_mapping_held() -> bool = is_mapping_held;
    /// Whether work on a stream that is not held stands behind those that are.
    fn is_behind_held() -> bool = is_behind_held;
    /// The most physical memory that was ever in use at one time, in bytes.
    fn peak_physical_bytes() -> u64 = memory.supply.peak_bytes;
    /// Addresses that are reserved, in bytes.
    fn reserved_address_bytes() -> u64 = memory.vm.reserved_address_bytes;
    /// Adds a planned failure; it counts calls from now on.
    fn install_fault(plan: FaultPlan) = faults.install;
    /// Removes all planned failures.
    fn clear_faults() = faults.clear;
    /// How many calls have failed by plan since the plans were last cleared. A sweep over the n-th
    /// call is complete when its plan no longer fires.
    fn faults_fired() -> u64 = faults.fired;
}
