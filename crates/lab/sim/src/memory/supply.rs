//! [`Supply`]: the bytes and the addresses a device has left.

use super::address_space::AddressSpace;
use super::piece::Physical;
use crate::GRANULARITY_BYTES;
use crate::config::SimConfig;
use drystone_driver::ErrorCode;

#[derive(Debug)]
pub(crate) struct Supply {
    total_bytes: u64,
    used_bytes: u64,
    peak_bytes: u64,
    next_physical: Physical,
    addresses: AddressSpace,
}

impl Supply {
    pub(crate) fn new(config: &SimConfig) -> Self {
        let first = config.first_address;
        let space = config.address_space_bytes.min(u64::MAX - first);
        let space = space - space % GRANULARITY_BYTES;
        Self {
            total_bytes: config.total_bytes,
            used_bytes: 0,
            peak_bytes: 0,
            next_physical: 0,
            addresses: AddressSpace::new(first, space),
        }
    }

    pub(crate) const fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(crate) const fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    pub(crate) const fn free_bytes(&self) -> u64 {
        self.total_bytes - self.used_bytes
    }

    /// Takes physical memory and numbers its bytes.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<Physical, ErrorCode> {
        if bytes > self.free_bytes() {
            return Err(ErrorCode::OutOfMemory);
        }
        let physical = self.next_physical;
        self.next_physical = physical.checked_add(bytes).ok_or(ErrorCode::OutOfMemory)?;
        self.used_bytes += bytes;
        self.peak_bytes = self.peak_bytes.max(self.used_bytes);
        Ok(physical)
    }

    pub(crate) const fn give_back(&mut self, bytes: u64) {
        self.used_bytes -= bytes;
    }

    pub(crate) fn take_addresses(&mut self, bytes: u64, align: u64) -> Result<u64, ErrorCode> {
        self.addresses.take(bytes, align).ok_or(ErrorCode::OutOfMemory)
    }

    pub(crate) fn give_addresses(&mut self, address: u64, bytes: u64) {
        self.addresses.give(address, bytes);
    }

    /// Takes memory and addresses for it, both or neither.
    pub(crate) fn take_addressed(
        &mut self,
        bytes: u64,
        addresses: u64,
        align: u64,
    ) -> Result<(u64, Physical), ErrorCode> {
        let address = self.take_addresses(addresses, align)?;
        match self.take(bytes) {
            Ok(physical) => Ok((address, physical)),
            Err(code) => {
                self.give_addresses(address, addresses);
                Err(code)
            }
        }
    }
}
