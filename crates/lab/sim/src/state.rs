//! [`State`]: everything behind the device's lock, and what every call goes through.

use crate::capture::Captures;
use crate::clock::Clock;
use crate::config::SimConfig;
use crate::event::Events;
use crate::fault::Faults;
use crate::held::{Bystanders, Gate, Held, Moved};
use crate::legality::{Legality, Rule};
use crate::memory::Memory;
use crate::oracle::Oracle;
use crate::rng::Rng;
use crate::stream::Streams;
use crate::violation::{Violation, ViolationLog, is_callers_mistake, needs_live_handles};
use drystone_driver::{Call, ErrorCode, Stream};
use std::sync::Arc;

/// Whether the process may still use the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Running,
    ContextLost,
    /// Somebody reset the device, and perhaps the caller has found out.
    Reset {
        is_known: bool,
    },
    Exiting,
    ForkedChild,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) config: Arc<SimConfig>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) rng: Rng,
    pub(crate) memory: Memory,
    pub(crate) streams: Streams,
    pub(crate) events: Events,
    pub(crate) captures: Captures,
    /// How long calls have blocked the host.
    pub(crate) host_waited_ns: u64,
    /// Times the driver made a stream wait for another to serve it from a memory pool.
    pub(crate) added_waits: u64,
    /// Devices that were given access to this one's memory, in the order they were.
    pub(crate) peers: Vec<u32>,
    /// Streams that stand still.
    pub(crate) held: Vec<Held>,
    /// Kernels that run until a gate opens.
    pub(crate) running: Vec<(Stream, Gate)>,
    pub(crate) moved: Moved,
    pub(crate) bystanders: Bystanders,
    /// When the copies that were begun are done, and between which addresses they are.
    pub(crate) copied_until_ns: u64,
    pub(crate) copies: Vec<(u64, u64)>,
    pub(crate) faults: Faults,
    pub(crate) oracle: Option<Box<Oracle>>,
    pub(crate) log: ViolationLog,
    pub(crate) life: Life,
}

impl State {
    pub(crate) fn new(config: Arc<SimConfig>, clock: Arc<Clock>) -> Self {
        Self {
            rng: Rng::new(config.seed),
            memory: Memory::new(&config),
            streams: Streams::new(config.ordinal, Arc::clone(&clock)),
            events: Events::new(),
            captures: Captures::default(),
            host_waited_ns: 0,
            added_waits: 0,
            peers: Vec::new(),
            held: Vec::new(),
            running: Vec::new(),
            moved: Moved::default(),
            bystanders: Bystanders::default(),
            copied_until_ns: 0,
            copies: Vec::new(),
            faults: Faults::default(),
            oracle: config
                .oracle
                .then(|| Box::new(Oracle::new(config.ordinal, config.harsh.launches_are_early))),
            log: ViolationLog::new(config.on_violation),
            life: Life::Running,
            config,
            clock,
        }
    }

    /// The size that a call over a range is priced by: that of set access and unmap goes by the
    /// mappings there.
    pub(crate) fn priced_bytes(&self, call: Call, bytes: u64, address: u64) -> u64 {
        match call {
            Call::SetAccess | Call::Unmap => {
                let mappings = self.memory.vm.mappings_in(address, bytes);
                self.config.costs.get(call).bytes_of_mappings(mappings, bytes)
            }
            _ => bytes,
        }
    }

    /// What every call goes through before it does anything.
    pub(crate) fn enter(&mut self, call: Call, priced_bytes: u64) -> Result<(), ErrorCode> {
        let ended = match self.life {
            Life::Running => None,
            Life::ContextLost => return Err(ErrorCode::ContextLost),
            // Implementations make no call any more.
            Life::Reset { is_known: true } => return Err(ErrorCode::DeviceReset),
            // Handles and addresses from before lead nowhere: a real driver crashes on some.
            Life::Reset { is_known: false } => Some(ErrorCode::DeviceReset),
            Life::Exiting => Some(ErrorCode::Deinitialized),
            Life::ForkedChild => Some(ErrorCode::NotInitialized),
        };
        if let Some(code) = ended {
            self.log.add(Violation::CallAfterEnd { call, code });
            return Err(code);
        }
        if self.config.calls_take_time {
            let cost_us = self.config.costs.get(call).time_us(1, priced_bytes);
            self.clock.advance_by((cost_us * 1e3) as u64);
        }
        if self.config.clock_jitter_ns > 0 {
            self.clock.advance_by(self.rng.up_to(self.config.clock_jitter_ns));
        }
        self.faults.check(&call)
    }

    /// Refuses what a capture forbids to the calling thread, and breaks that capture.
    pub(crate) fn permit(&mut self, rule: &Rule) -> Result<(), ErrorCode> {
        if let Some(&(_, legality)) = self.config.legality.iter().find(|one| one.0 == rule.function)
        {
            return self.captures.permit(legality);
        }
        let harsh = &self.config.harsh;
        let is_spared = match rule.legality {
            Legality::Unproven => !harsh.unproven_is_illegal,
            _ => rule.is_of_attributes() && !harsh.pool_attributes_are_illegal,
        };
        if is_spared { Ok(()) } else { self.captures.permit(rule.legality) }
    }

    pub(crate) fn permit_named(&mut self, function: &str) -> Result<(), ErrorCode> {
        let rule = Rule::named(function).unwrap_or(Rule::unknown());
        let result = self.permit(&rule);
        if result.is_err() {
            self.note_forbidden(rule.function);
        }
        result
    }

    pub(crate) fn note_forbidden(&mut self, function: &'static str) {
        if self.config.strict {
            self.log.add(Violation::ForbiddenCall { function });
        }
    }

    #[expect(clippy::panic, reason = "a real driver ends the process here")]
    pub(crate) fn note_refusal(&mut self, call: Call, code: ErrorCode) {
        self.note_stop();
        if code == ErrorCode::InvalidHandle
            && self.config.harsh.stale_handles_end
            && needs_live_handles(call)
        {
            let violation = Violation::StaleHandle { call };
            self.log.add(violation.clone());
            panic!("{violation}");
        }
        if self.config.strict && is_callers_mistake(call, code) {
            self.log.add(Violation::IllegalCall { call, code });
        }
    }

    /// A host that has stopped takes the driver with it.
    pub(crate) fn note_stop(&mut self) {
        let host =
            self.memory.supply.host().map(|(host, _)| (host.is_stopped(), host.lowest_bytes()));
        if let Some((true, left_bytes)) = host
            && self.life == Life::Running
        {
            self.life = Life::ContextLost;
            self.log.add(Violation::HostStopped { left_bytes });
        }
    }

    pub(crate) fn check_sharing(&self) -> Result<(), ErrorCode> {
        let can_share = self.config.has_virtual_memory && self.config.is_shareable;
        if can_share { Ok(()) } else { Err(ErrorCode::NotSupported) }
    }

    pub(crate) fn check_virtual_memory(&self) -> Result<(), ErrorCode> {
        if self.config.has_virtual_memory { Ok(()) } else { Err(ErrorCode::NotSupported) }
    }
}
