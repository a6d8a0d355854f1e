//! Streams as calls: kernels, questions, and waiting by the host.

use crate::state::State;
use drystone_driver::{ErrorCode, Stream};

impl State {
    /// Queues a kernel. In a capture it becomes part of the graph and does not run.
    pub(crate) fn launch(&mut self, stream: Stream, duration_ns: u64) -> Result<(), ErrorCode> {
        let now_ns = self.clock.now_ns();
        let queue = self.streams.get_mut(stream)?;
        if let Some(membership) = &mut queue.capture {
            self.captures.check_intact(membership.capture)?;
            membership.order.tick(queue.index);
            membership.path_ns = membership.path_ns.saturating_add(duration_ns);
        } else {
            queue.busy_until_ns = queue.busy_until_ns.max(now_ns).saturating_add(duration_ns);
        }
        Ok(())
    }

    pub(crate) fn query_stream(&mut self, stream: Stream) -> Result<bool, ErrorCode> {
        let queue = self.streams.get(stream)?;
        if let Some(membership) = &queue.capture {
            self.captures.break_one(membership.capture);
            return Err(ErrorCode::CaptureUnsupported);
        }
        self.captures.permit()?;
        let is_idle = queue.busy_until_ns.max(queue.marked_until_ns) <= self.clock.now_ns();
        if let (true, Some(oracle)) = (is_idle, &mut self.oracle) {
            oracle.order.host_observes_stream(queue.index);
        }
        Ok(is_idle)
    }

    pub(crate) fn synchronize_stream(&mut self, stream: Stream) -> Result<(), ErrorCode> {
        let queue = self.streams.get(stream)?;
        if let Some(membership) = &queue.capture {
            self.captures.break_one(membership.capture);
            return Err(ErrorCode::CaptureUnsupported);
        }
        self.captures.permit()?;
        self.clock.advance_to(queue.busy_until_ns.max(queue.marked_until_ns));
        let index = queue.index;
        if let Some(oracle) = &mut self.oracle {
            oracle.order.host_observes_stream(index);
        }
        self.trim_pools();
        Ok(())
    }

    pub(crate) fn synchronize_device(&mut self) -> Result<(), ErrorCode> {
        // The device encloses every stream, so no capture mode lets this pass.
        if self.captures.break_all() {
            return Err(ErrorCode::CaptureUnsupported);
        }
        self.wait_until_idle();
        self.trim_pools();
        Ok(())
    }

    /// Blocks the host until the device is idle.
    pub(crate) fn wait_until_idle(&mut self) {
        self.clock.advance_to(self.streams.idle_ns());
        if let Some(oracle) = &mut self.oracle {
            oracle.order.host_observes_device();
        }
    }
}
