//! Virtual and plain memory as calls, as far as the oracle is told of them or captures forbid them.

use crate::state::State;
use crate::stream::Context;
use drystone_driver::{Call, ErrorCode, Handle};

impl State {
    pub(crate) fn release(&mut self, handle: Handle) -> Result<(), ErrorCode> {
        let gone = self.memory.vm.release(&mut self.memory.supply, handle)?;
        if let (Some(piece), Some(oracle)) = (gone, &mut self.oracle) {
            oracle.physical_gone(piece.physical, piece.bytes);
        }
        Ok(())
    }

    pub(crate) fn unmap(&mut self, address: u64, bytes: u64) -> Result<(), ErrorCode> {
        self.memory.vm.check_whole_mappings(address, bytes)?;
        self.check_copies(address, bytes);
        let is_held = self.holds_any();
        self.note_bystanders(address, bytes, is_held);
        if let Some(oracle) = &mut self.oracle {
            oracle.unmapped(&mut self.log, address, bytes, is_held);
        }
        let gone = self.memory.vm.unmap(&mut self.memory.supply, address, bytes)?;
        if let Some(oracle) = &mut self.oracle {
            for piece in gone {
                oracle.physical_gone(piece.physical, piece.bytes);
            }
        }
        Ok(())
    }

    /// Memory that only descriptors kept goes back once these are closed.
    pub(crate) fn look_at_exports(&mut self) {
        for piece in self.memory.vm.look_at_exports(&mut self.memory.supply) {
            if let Some(oracle) = &mut self.oracle {
                oracle.physical_gone(piece.physical, piece.bytes);
            }
        }
    }

    pub(crate) fn malloc(&mut self, bytes: u64, context: Context) -> Result<u64, ErrorCode> {
        self.look_at_exports();
        self.memory.plain.malloc(&mut self.memory.supply, bytes, context)
    }

    pub(crate) fn free(&mut self, address: u64) -> Result<(), ErrorCode> {
        let (_, context) = self.memory.plain.lookup(address)?;
        self.wait_until_idle(context);
        self.take_back(address)
    }

    /// Ends what a context has: its plain memory, and its streams, whose captures are broken. What
    /// these have queued still runs.
    pub(crate) fn destroy_context(&mut self, context: Context) -> Vec<(u64, u64)> {
        for (capture, index) in self.streams.destroy_all_of(context) {
            self.captures.lose_stream(capture, index);
        }
        let plain = self.memory.plain.of_context(context);
        for &(address, _) in &plain {
            let _ = self.take_back(address);
        }
        plain
    }

    fn take_back(&mut self, address: u64) -> Result<(), ErrorCode> {
        let (piece, _) = self.memory.plain.lookup(address)?;
        if let Some(oracle) = &mut self.oracle {
            oracle.freed(&mut self.log, Call::Free, address, piece.bytes);
            oracle.physical_gone(piece.physical, piece.bytes);
        }
        self.memory.plain.free(&mut self.memory.supply, address);
        Ok(())
    }
}
