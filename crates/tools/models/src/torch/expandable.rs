//! Expandable segments: a range of addresses that grows by mapping one handle after another.
//!
//! Invariant: `handles[i]` is present exactly where memory is mapped.

use drystone_driver::{Driver, DriverError, Handle, Stream};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExpandableId(usize);

/// A reserved range of addresses, partly mapped.
#[derive(Debug)]
pub(super) struct Expandable {
    address: u64,
    bytes: u64,
    handle_bytes: u64,
    stream: Stream,
    /// By position in the range; as long as the furthest mapping so far.
    handles: Vec<Option<Handle>>,
}

impl Expandable {
    /// A range of addresses with nothing mapped.
    pub(super) fn new(address: u64, bytes: u64, handle_bytes: u64, stream: Stream) -> Self {
        Self { address, bytes, handle_bytes, stream, handles: Vec::new() }
    }

    /// Gives the addresses back to the device; nothing is mapped any more.
    pub(super) fn unreserve(self, driver: &dyn Driver) -> Result<(), DriverError> {
        driver.unreserve(self.address, self.bytes)
    }

    /// Maps as many handles as cover `bytes` from `address`, which is where an unmapped block
    /// begins. Returns the bytes mapped, or `None` when the device is out of memory; then
    /// everything is as before.
    pub(super) fn map(
        &mut self,
        driver: &dyn Driver,
        address: u64,
        bytes: u64,
    ) -> Result<Option<u64>, DriverError> {
        let begin = ((address - self.address) / self.handle_bytes) as usize;
        let count = bytes.div_ceil(self.handle_bytes);
        let mut created = Vec::with_capacity(count as usize);
        for _ in 0..count {
            match driver.create(self.handle_bytes) {
                Ok(handle) => created.push(handle),
                Err(error) => {
                    for handle in created {
                        driver.release(handle)?;
                    }
                    return if error.is_out_of_memory() { Ok(None) } else { Err(error) };
                }
            }
        }
        let mapped = count * self.handle_bytes;
        if let Err(error) = self.attach(driver, address, &created) {
            for handle in created {
                driver.release(handle)?;
            }
            return Err(error);
        }
        let end = begin + created.len();
        if self.handles.len() < end {
            self.handles.resize(end, None);
        }
        for (slot, handle) in self.handles[begin..end].iter_mut().zip(created) {
            *slot = Some(handle);
        }
        Ok(Some(mapped))
    }

    /// Maps the handles one behind the other and makes the whole range accessible. Where PyTorch
    /// leaves a failure half done, and later requests fail over it, here it is undone.
    fn attach(
        &self,
        driver: &dyn Driver,
        address: u64,
        handles: &[Handle],
    ) -> Result<(), DriverError> {
        let mut end = address;
        let mut outcome = Ok(());
        for handle in handles {
            outcome = driver.map(end, self.handle_bytes, *handle);
            if outcome.is_err() {
                break;
            }
            end += self.handle_bytes;
        }
        let outcome = outcome.and_then(|()| driver.set_access(address, end - address));
        if outcome.is_err() && end > address {
            driver.unmap(address, end - address)?;
        }
        outcome
    }

    /// The handles that lie wholly inside a range, as their first address and their bytes.
    pub(super) fn handles_inside(&self, address: u64, bytes: u64) -> (u64, u64) {
        let offset = address - self.address;
        let begin = offset.next_multiple_of(self.handle_bytes);
        let end = (offset + bytes) / self.handle_bytes * self.handle_bytes;
        (self.address + begin, end.saturating_sub(begin))
    }

    /// Unmaps a range of whole handles and gives them back, once the segment's stream is done.
    pub(super) fn unmap(
        &mut self,
        driver: &dyn Driver,
        address: u64,
        bytes: u64,
    ) -> Result<(), DriverError> {
        driver.synchronize_stream(self.stream)?;
        let begin = ((address - self.address) / self.handle_bytes) as usize;
        let count = (bytes / self.handle_bytes) as usize;
        let mut at = address;
        for slot in self.handles.iter_mut().skip(begin).take(count) {
            if let Some(handle) = slot.take() {
                driver.unmap(at, self.handle_bytes)?;
                driver.release(handle)?;
            }
            at += self.handle_bytes;
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(super) struct Expandables {
    items: Vec<Option<Expandable>>,
}

impl Expandables {
    /// Names a segment.
    pub(super) fn insert(&mut self, segment: Expandable) -> ExpandableId {
        let free = self.items.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.items.push(None);
            self.items.len() - 1
        });
        self.items[index] = Some(segment);
        ExpandableId(index)
    }

    pub(super) fn get(&mut self, id: ExpandableId) -> Option<&mut Expandable> {
        self.items.get_mut(id.0)?.as_mut()
    }

    /// Ends a name, and returns its segment.
    pub(super) fn remove(&mut self, id: ExpandableId) -> Option<Expandable> {
        self.items.get_mut(id.0)?.take()
    }
}
