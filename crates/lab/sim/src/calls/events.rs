//! Events as calls: records, questions, and waits by the host and by streams.

use crate::capture::{CAPTURE_IMPLICIT, CAPTURE_ISOLATION};
use crate::event::{Mark, Recorded};
use crate::happens_before::VectorClock;
use crate::legality::Rule;
use crate::refuse::refuse;
use crate::state::State;
use drystone_driver::{Call, ErrorCode, Event, Stream};

impl State {
    pub(crate) fn record(&mut self, event: Event, stream: Stream) -> Result<(), ErrorCode> {
        self.events.get(event)?;
        let queue = self.streams.get_mut(stream)?;
        let clock = match &mut self.oracle {
            Some(oracle) => oracle.order.stream(queue.index).clone(),
            None => VectorClock::default(),
        };
        let recorded = if let Some(within) = queue.capture.clone() {
            self.captures.check_intact(within.capture)?;
            Recorded::Captured { within, clock }
        } else {
            let late_ns = self.rng.up_to(self.config.event_jitter_ns);
            let done_ns = queue.busy_until_ns.max(self.clock.now_ns());
            let ready_ns = done_ns
                .saturating_add(self.config.event_latency_ns)
                .saturating_add(late_ns)
                .max(queue.marked_until_ns);
            queue.marked_until_ns = ready_ns;
            Recorded::Work(Mark { ordinal: self.config.ordinal, ready_ns, clock })
        };
        self.events.set(event, recorded)
    }

    pub(crate) fn query(&mut self, event: Event) -> Result<bool, ErrorCode> {
        let Some(ready_ns) = self.ready_ns(event, Call::Query)? else { return Ok(true) };
        let is_ready = ready_ns <= self.clock.now_ns();
        if is_ready {
            self.host_observes(event);
        }
        Ok(is_ready)
    }

    pub(crate) fn synchronize_event(&mut self, event: Event) -> Result<(), ErrorCode> {
        if let Some(ready_ns) = self.ready_ns(event, Call::SynchronizeEvent)? {
            self.wait_until(ready_ns);
            self.host_observes(event);
            self.trim_pools();
        }
        Ok(())
    }

    pub(crate) fn wait(&mut self, stream: Stream, event: Event) -> Result<(), ErrorCode> {
        let recorded = self.events.get(event)?;
        let queue = self.streams.get_mut(stream)?;
        let clock = match (recorded, &mut queue.capture) {
            (Recorded::Never, _) => return Ok(()),
            (Recorded::Work(Mark { ready_ns, clock, .. }), None) => {
                queue.busy_until_ns = queue.busy_until_ns.max(*ready_ns);
                clock
            }
            (Recorded::Work(_), Some(own)) => {
                self.captures.break_one(own.capture);
                return Err(CAPTURE_ISOLATION);
            }
            (Recorded::Captured { within, clock }, capture) => {
                refuse(ErrorCode::CapturedEvent, !self.captures.is_ongoing(within.capture))?;
                self.captures.check_intact(within.capture)?;
                match capture {
                    Some(own) if own.capture == within.capture => {
                        own.order.join(&within.order);
                        own.path_ns = own.path_ns.max(within.path_ns);
                    }
                    Some(own) => {
                        self.captures.break_one(own.capture);
                        self.captures.break_one(within.capture);
                        return Err(ErrorCode::CapturedEvent);
                    }
                    None if queue.is_legacy => {
                        self.captures.break_one(within.capture);
                        return Err(CAPTURE_IMPLICIT);
                    }
                    None => {
                        let mut joined = within.clone();
                        joined.order.tick(queue.index);
                        *capture = Some(joined);
                    }
                }
                clock
            }
        };
        self.oracle.iter_mut().for_each(|oracle| oracle.order.stream(queue.index).join(clock));
        Ok(())
    }

    /// Makes a stream wait for an event of another device.
    pub(crate) fn wait_mark(&mut self, stream: Stream, mark: &Mark) -> Result<(), ErrorCode> {
        let queue = self.streams.get_mut(stream)?;
        if let Some(own) = &queue.capture {
            self.captures.break_one(own.capture);
            return Err(CAPTURE_ISOLATION);
        }
        queue.busy_until_ns = queue.busy_until_ns.max(mark.ready_ns);
        if let Some(oracle) = &mut self.oracle {
            let clock = oracle.order.stream(queue.index);
            match mark.ordinal == self.config.ordinal {
                true => clock.join(&mark.clock),
                false => clock.join_of_peer(self.config.ordinal, mark.ordinal, &mark.clock),
            }
        }
        Ok(())
    }

    /// What another device has to know of the event; `None` if it was never recorded.
    pub(crate) fn mark(&self, event: Event) -> Result<Option<Mark>, ErrorCode> {
        match self.events.get(event)? {
            Recorded::Never => Ok(None),
            Recorded::Work(mark) => Ok(Some(mark.clone())),
            Recorded::Captured { .. } => Err(ErrorCode::CapturedEvent),
        }
    }

    /// When the event becomes ready; `None` if it was never recorded. Refused, with what that
    /// breaks, where the host may not ask.
    fn ready_ns(&mut self, event: Event, call: Call) -> Result<Option<u64>, ErrorCode> {
        let ready_ns = match self.events.get(event)? {
            Recorded::Never => None,
            Recorded::Work(mark) => Some(mark.ready_ns),
            Recorded::Captured { within, .. } => {
                self.captures.break_one(within.capture);
                return Err(ErrorCode::CapturedEvent);
            }
        };
        self.permit(Rule::of(call))?;
        Ok(ready_ns)
    }

    fn host_observes(&mut self, event: Event) {
        if let (Some(oracle), Ok(Recorded::Work(mark))) = (&mut self.oracle, self.events.get(event))
        {
            oracle.order.host_observes(&mark.clock);
        }
    }
}
