//! [`Supply`]: the bytes and the addresses a device has left. The bytes may be shared with other
//! processes; the addresses are this one's.

use super::address_space::AddressSpace;
use super::holdings::Holdings;
use super::host::HostMemory;
use super::piece::Physical;
use crate::GRANULARITY_BYTES;
use crate::config::SimConfig;
use crate::refuse::refuse;
use crate::shared_file::FileIdentity;
use drystone_driver::ErrorCode;
use std::os::fd::RawFd;

#[derive(Debug)]
pub(crate) struct Supply {
    total_bytes: u64,
    is_overcommitted: bool,
    process_limit_bytes: u64,
    used_bytes: u64,
    /// What contexts take, beside what is allocated.
    context_bytes: u64,
    peak_bytes: u64,
    next_physical: Physical,
    addresses: AddressSpace,
    /// What other processes hold, too; or why that cannot be known.
    holdings: Option<Result<Holdings, ErrorCode>>,
    /// Of a device that has no memory of its own.
    host: Option<HostMemory>,
}

impl Supply {
    pub(crate) fn new(config: &SimConfig) -> Self {
        let first = config.first_address;
        let space = config.address_space_bytes.min(u64::MAX - first);
        let space = space - space % GRANULARITY_BYTES;
        Self {
            total_bytes: config.total_bytes,
            is_overcommitted: config.is_overcommitted,
            process_limit_bytes: config.process_limit_bytes,
            used_bytes: 0,
            context_bytes: 0,
            peak_bytes: 0,
            next_physical: 0,
            addresses: AddressSpace::new(first, space),
            holdings: config.shared.as_ref().map(|path| Holdings::open(path, config.ordinal)),
            host: config.host.clone().map(|host| HostMemory::new(host, config.total_bytes)),
        }
    }

    pub(crate) const fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(crate) const fn context_bytes(&self) -> u64 {
        self.context_bytes
    }

    pub(crate) const fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// Errors: what other processes hold cannot be known.
    pub(crate) fn free_bytes(&self) -> Result<u64, ErrorCode> {
        let own = self.own_bytes();
        if let Some(host) = &self.host {
            return Ok(host.available_bytes(own));
        }
        let used = self.holdings()?.map_or(Ok(own), Holdings::used_bytes)?;
        Ok(self.total_bytes.saturating_sub(used))
    }

    const fn own_bytes(&self) -> u64 {
        self.used_bytes + self.context_bytes
    }

    pub(crate) fn host(&mut self) -> Option<(&mut HostMemory, u64)> {
        let own_bytes = self.own_bytes();
        self.host.as_mut().map(|host| (host, own_bytes))
    }

    /// Takes what a handle stands for, which is made of larger pages than other memory.
    pub(crate) fn take_handle(&mut self, bytes: u64) -> Result<Physical, ErrorCode> {
        if let Some((host, own_bytes)) = self.host() {
            host.check_handle(own_bytes, bytes)?;
        }
        self.take(bytes)
    }

    fn holdings(&self) -> Result<Option<&Holdings>, ErrorCode> {
        self.holdings.as_ref().map(Result::as_ref).transpose().map_err(|code| *code)
    }

    const fn limit_bytes(&self) -> u64 {
        if self.is_overcommitted { u64::MAX } else { self.total_bytes }
    }

    /// Takes physical memory and numbers its bytes.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<Physical, ErrorCode> {
        refuse(
            ErrorCode::OutOfMemory,
            bytes > self.process_limit_bytes.saturating_sub(self.used_bytes),
        )?;
        self.find_room(bytes, self.limit_bytes())?;
        self.count(bytes)
    }

    /// Whether there is room below the limit, which is taken where others see it.
    fn find_room(&mut self, bytes: u64, limit_bytes: u64) -> Result<(), ErrorCode> {
        if let Some((host, own_bytes)) = self.host() {
            return host.take(own_bytes, bytes);
        }
        match self.holdings()? {
            Some(holdings) => holdings.take(bytes, limit_bytes),
            None => {
                let left = limit_bytes.saturating_sub(self.own_bytes());
                if bytes > left { Err(ErrorCode::OutOfMemory) } else { Ok(()) }
            }
        }
    }

    /// Takes what a context takes. It is no part of what is allocated, and of no limit of that.
    pub(crate) fn take_context(&mut self, bytes: u64) -> Result<(), ErrorCode> {
        self.find_room(bytes, self.limit_bytes())?;
        self.context_bytes += bytes;
        Ok(())
    }

    /// The same of contexts that were there before the device was: they have their memory.
    pub(crate) fn keep_contexts(&mut self, bytes: u64) -> Result<(), ErrorCode> {
        self.find_room(bytes, u64::MAX)?;
        self.context_bytes += bytes;
        Ok(())
    }

    pub(crate) fn give_context(&mut self, bytes: u64) {
        self.context_bytes -= bytes;
        if let Some(Ok(holdings)) = &self.holdings {
            holdings.give_back(bytes);
        }
    }

    /// Takes part in memory that another process made. Where nothing is shared but this, it takes
    /// room as any other.
    pub(crate) fn take_imported(
        &mut self,
        file: FileIdentity,
        bytes: u64,
    ) -> Result<Physical, ErrorCode> {
        match self.holdings()? {
            Some(holdings) => holdings.import(file, bytes)?,
            None => return self.take(bytes),
        }
        self.count(bytes)
    }

    /// Memory that was taken can be others', too, from now on.
    pub(crate) fn note_exported(&self, file: FileIdentity, bytes: u64) -> Result<(), ErrorCode> {
        self.holdings()?.map_or(Ok(()), |holdings| holdings.export(file, bytes))
    }

    /// Only descriptors keep it now, by the number under which this process has the file; or it is
    /// held again.
    pub(crate) fn note_outlived(&self, file: FileIdentity, number: Option<RawFd>) {
        if let Some(Ok(holdings)) = &self.holdings {
            holdings.set_outlived(file, number);
        }
    }

    fn count(&mut self, bytes: u64) -> Result<Physical, ErrorCode> {
        let physical = self.number(bytes)?;
        self.used_bytes += bytes;
        self.peak_bytes = self.peak_bytes.max(self.used_bytes);
        Ok(physical)
    }

    /// Numbers bytes that are taken elsewhere.
    pub(crate) fn number(&mut self, bytes: u64) -> Result<Physical, ErrorCode> {
        let physical = self.next_physical;
        self.next_physical = physical.checked_add(bytes).ok_or(ErrorCode::OutOfMemory)?;
        Ok(physical)
    }

    pub(crate) fn give_back(&mut self, bytes: u64) {
        self.used_bytes -= bytes;
        if let Some(Ok(holdings)) = &self.holdings {
            holdings.give_back(bytes);
        }
    }

    /// Gives back what is, or was, others', too.
    pub(crate) fn give_back_shared(&mut self, file: FileIdentity, bytes: u64) {
        self.used_bytes -= bytes;
        if let Some(Ok(holdings)) = &self.holdings {
            holdings.let_go(file);
        }
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
