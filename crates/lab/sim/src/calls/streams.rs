//! Streams as calls: kernels, questions, and waiting by the host.

use crate::legality::Rule;
use crate::state::State;
use crate::stream::Context;
use drystone_driver::{Call, ErrorCode, Stream, StreamUid};

impl State {
    /// Queues a kernel. In a capture it becomes part of the graph and does not run.
    pub(crate) fn launch(&mut self, stream: Stream, duration_ns: u64) -> Result<(), ErrorCode> {
        let most = self.config.launch_queue;
        let queue = self.streams.get_mut(stream)?;
        if let Some(membership) = &mut queue.capture {
            self.captures.check_intact(membership.capture)?;
            membership.order.tick(queue.index);
            membership.path_ns = membership.path_ns.saturating_add(duration_ns);
        } else {
            if most > 0 && queue.queued.len() == most {
                self.clock.advance_to(queue.queued.pop_front().unwrap_or(0));
            }
            let begin_ns = queue.busy_until_ns.max(self.clock.now_ns());
            queue.busy_until_ns = begin_ns.saturating_add(duration_ns);
            if most > 0 {
                queue.queued.push_back(queue.busy_until_ns);
            }
        }
        Ok(())
    }

    pub(crate) fn query_stream(&mut self, stream: Stream) -> Result<bool, ErrorCode> {
        self.check_uncaptured(stream)?;
        self.permit_named("cuStreamQuery")?;
        let is_running = self.runs(Some(&[stream]));
        let queue = self.streams.get(stream)?;
        let is_idle =
            !is_running && queue.busy_until_ns.max(queue.marked_until_ns) <= self.clock.now_ns();
        if let (true, Some(oracle)) = (is_idle, &mut self.oracle) {
            oracle.order.host_observes_stream(queue.index);
        }
        Ok(is_idle)
    }

    pub(crate) fn synchronize_stream(&mut self, stream: Stream) -> Result<(), ErrorCode> {
        self.check_uncaptured(stream)?;
        self.permit(Rule::of(Call::SynchronizeStream))?;
        let queue = self.streams.get(stream)?;
        let (index, done_ns) = (queue.index, queue.busy_until_ns.max(queue.marked_until_ns));
        self.wait_until(done_ns);
        self.oracle.iter_mut().for_each(|oracle| oracle.order.host_observes_stream(index));
        self.trim_pools();
        Ok(())
    }

    pub(crate) fn synchronize_context(&mut self, context: Context) -> Result<(), ErrorCode> {
        self.wait_until_idle(context);
        self.trim_pools();
        Ok(())
    }

    /// The driver's own answer, which it refuses of a captured stream.
    pub(crate) fn stream_id(&mut self, stream: Stream) -> Result<StreamUid, ErrorCode> {
        self.check_uncaptured(stream)?;
        self.permit(Rule::of(Call::StreamUid))?;
        self.streams.uid(stream)
    }

    /// The same, as an implementation of the driver trait has it, which asks first whether the
    /// stream is captured, and remembers.
    pub(crate) fn stream_uid(&mut self, stream: Stream) -> Result<StreamUid, ErrorCode> {
        match self.streams.get(stream)?.capture {
            Some(_) => self.streams.uid(stream),
            None => self.stream_id(stream),
        }
    }

    /// For calls that break the capture that their own stream takes part in.
    fn check_uncaptured(&mut self, stream: Stream) -> Result<(), ErrorCode> {
        if let Some(membership) = &self.streams.get(stream)?.capture {
            self.captures.break_one(membership.capture);
            return Err(ErrorCode::CaptureUnsupported);
        }
        Ok(())
    }

    /// For functions beside the driver trait that break the capture of their own stream.
    pub(crate) fn permit_on(
        &mut self,
        function: &'static str,
        stream: Stream,
    ) -> Result<(), ErrorCode> {
        self.check_uncaptured(stream).inspect_err(|&code| {
            if code == ErrorCode::CaptureUnsupported {
                self.note_forbidden(function);
            }
        })
    }

    /// Blocks the host in a call until the device has come so far.
    pub(crate) fn wait_until(&mut self, time_ns: u64) {
        self.host_waited_ns += time_ns.saturating_sub(self.clock.now_ns());
        self.clock.advance_to(time_ns);
    }

    /// Blocks the host until a context is idle, with all that its streams wait for.
    pub(crate) fn wait_until_idle(&mut self, context: Context) {
        self.wait_until(self.streams.idle_ns(context));
        if let Some(oracle) = &mut self.oracle {
            for index in self.streams.take_indexes(context) {
                oracle.order.host_observes_stream(index);
            }
        }
    }
}
