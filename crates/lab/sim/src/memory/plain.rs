//! [`PlainMemory`]: what `cudaMalloc` gives.
//!
//! Charged as the peer rig charges it: whole 2 MiB granules from 1 MiB up, and 512-byte multiples
//! below, as if small requests packed perfectly. Neighbours may touch, as they do on a device. Each
//! allocation is of the context that it was made in.

use super::piece::{Physical, Piece};
use super::supply::Supply;
use crate::GRANULARITY_BYTES;
use crate::refuse::refuse;
use crate::stream::Context;
use drystone_driver::ErrorCode;
use std::collections::BTreeMap;

const SMALL_BYTES: u64 = 1 << 20;
const ALIGN_BYTES: u64 = 512;

#[derive(Debug, Default)]
pub(crate) struct PlainMemory {
    allocations: BTreeMap<u64, Plain>,
}

#[derive(Debug)]
struct Plain {
    asked_bytes: u64,
    charged_bytes: u64,
    physical: Physical,
    context: Context,
}

impl PlainMemory {
    pub(crate) fn malloc(
        &mut self,
        supply: &mut Supply,
        bytes: u64,
        context: Context,
    ) -> Result<u64, ErrorCode> {
        refuse(ErrorCode::InvalidValue, bytes == 0)?;
        let unit = if bytes < SMALL_BYTES { ALIGN_BYTES } else { GRANULARITY_BYTES };
        let charged = bytes.checked_next_multiple_of(unit).ok_or(ErrorCode::OutOfMemory)?;
        let (address, physical) = supply.take_addressed(charged, charged, unit)?;
        let plain = Plain { asked_bytes: bytes, charged_bytes: charged, physical, context };
        self.allocations.insert(address, plain);
        Ok(address)
    }

    /// What would be freed, and of which context it is; or why nothing would be.
    pub(crate) fn lookup(&self, address: u64) -> Result<(Piece, Context), ErrorCode> {
        let plain = self.allocations.get(&address).ok_or(ErrorCode::InvalidValue)?;
        let piece = Piece { address, physical: plain.physical, bytes: plain.charged_bytes };
        Ok((piece, plain.context))
    }

    /// The allocations of a context: address and size as it was asked for.
    pub(crate) fn of_context(&self, context: Context) -> Vec<(u64, u64)> {
        let own = self.allocations.iter().filter(|(_, plain)| plain.context == context);
        own.map(|(&address, plain)| (address, plain.asked_bytes)).collect()
    }

    pub(crate) fn free(&mut self, supply: &mut Supply, address: u64) {
        if let Some(plain) = self.allocations.remove(&address) {
            supply.give_back(plain.charged_bytes);
            supply.give_addresses(address, plain.charged_bytes);
        }
    }

    /// The allocation that holds `at`, as far as it was asked for.
    pub(crate) fn extent_at(&self, at: u64) -> Option<Piece> {
        let (&address, plain) = self.allocations.range(..=at).next_back()?;
        let piece = Piece { address, physical: plain.physical, bytes: plain.asked_bytes };
        (at - address < piece.bytes).then_some(piece)
    }

    pub(crate) fn len(&self) -> usize {
        self.allocations.len()
    }
}
