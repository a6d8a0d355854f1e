//! The segments of a snapshot and their blocks.

use super::fault::{Fault, Read, missing};
use super::reader::Reader;
use crate::codec::error::{Problem, quote};
use crate::codec::graph::Id;
use crate::snapshot::{Block, BlockState, Segment};

impl Reader<'_, '_> {
    pub(super) fn segments(&mut self, value: Id) -> Read<()> {
        for (index, segment) in self.list(value)?.enumerate() {
            self.plain.spend()?;
            let segment = self.segment(segment).map_err(|f| f.at(format_args!("[{index}]")))?;
            self.snapshot.segments.push(segment);
        }
        Ok(())
    }

    fn segment(&mut self, value: Id) -> Read<Segment> {
        let mut found = Segment::default();
        let (mut address, mut bytes, mut blocks) = (None, None, None);
        for (key, value) in self.dict(value)? {
            let fault = |fault: Fault| fault.at(String::from_utf8_lossy(key));
            match key {
                b"device" => found.device = self.small(value).map_err(fault)?,
                b"address" => address = Some(self.number(value).map_err(fault)?),
                b"total_size" => bytes = Some(self.number(value).map_err(fault)?),
                b"allocated_size" => found.allocated_bytes = self.number(value).map_err(fault)?,
                b"active_size" => found.active_bytes = self.number(value).map_err(fault)?,
                b"requested_size" => found.requested_bytes = self.number(value).map_err(fault)?,
                b"stream" => found.stream = self.handle(value).map_err(fault)?,
                b"segment_type" => found.is_small = self.text(value).map_err(fault)? == b"small",
                b"segment_pool_id" => found.pool = Some(self.pool(value).map_err(fault)?),
                b"is_expandable" => found.is_expandable = Some(self.flag(value).map_err(fault)?),
                b"frames" => found.stack = Some(self.stack(value).map_err(fault)?),
                b"blocks" => blocks = Some(value),
                _ => {}
            }
        }
        found.address = address.ok_or_else(|| missing("address"))?;
        found.bytes = bytes.ok_or_else(|| missing("total_size"))?;
        let end = end_of(found.address, found.bytes).map_err(|f| f.at("total_size"))?;
        let mut at = found.address;
        let blocks = blocks.ok_or_else(|| missing("blocks"))?;
        for (index, block) in self.list(blocks).map_err(|f| f.at("blocks"))?.enumerate() {
            self.plain.spend()?;
            let block = self.block(block, at, end);
            let block = block.map_err(|f| f.at(format_args!("[{index}]")).at("blocks"))?;
            at = block.address + block.bytes;
            found.blocks.push(block);
        }
        Ok(found)
    }

    /// A block that begins at `at` or later and ends by `end`. Old files have no addresses.
    fn block(&mut self, value: Id, at: u64, end: u64) -> Read<Block> {
        let (mut address, mut bytes, mut requested, mut state) = (at, None, None, None);
        let mut stack = None;
        for (key, value) in self.dict(value)? {
            let fault = |fault: Fault| fault.at(String::from_utf8_lossy(key));
            match key {
                b"address" => address = self.number(value).map_err(fault)?,
                b"size" => bytes = Some(self.number(value).map_err(fault)?),
                b"requested_size" => requested = Some(self.number(value).map_err(fault)?),
                b"state" => state = Some(self.state(value).map_err(fault)?),
                b"frames" => stack = Some(self.stack(value).map_err(fault)?),
                _ => {}
            }
        }
        let bytes = bytes.ok_or_else(|| missing("size"))?;
        let state = state.ok_or_else(|| missing("state"))?;
        if address < at || end_of(address, bytes)? > end {
            let wants = "a block behind the one before it and inside its segment";
            return Err(Problem::Value { found: format!("{address:#x}"), wants }.into());
        }
        Ok(Block { address, bytes, requested_bytes: requested.unwrap_or(bytes), state, stack })
    }

    fn state(&self, value: Id) -> Read<BlockState> {
        Ok(match self.text(value)? {
            b"active_allocated" => BlockState::Allocated,
            b"active_pending_free" | b"active_awaiting_free" => BlockState::PendingFree,
            b"inactive" => BlockState::Inactive,
            other => {
                let wants = "active_allocated, active_pending_free or inactive";
                return Err(Problem::Value { found: format!("`{}`", quote(other)), wants }.into());
            }
        })
    }
}

fn end_of(address: u64, bytes: u64) -> Read<u64> {
    let wants = "a size that ends below 2^64";
    let end = address.checked_add(bytes);
    end.ok_or_else(|| Problem::Value { found: bytes.to_string(), wants }.into())
}
