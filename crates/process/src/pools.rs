//! Private pools, by the pair of numbers that PyTorch names them with.
//!
//! A pool lives while it has uses. Between *begin* and *end* it takes the requests of those streams
//! that its filter says yes to. Invariants: uses balance, and a pool without uses is released once
//! (I12); no lock is held while a filter runs (I14); while no pool takes requests, asking which one
//! does costs one load.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use drystone::{Allocator, BuildError, MemoryProvider, PoolId};
use parking_lot::Mutex;

use crate::status::{Failure, Status};

/// Which streams' requests a pool takes, by their handles; `None`: all of the device's. Called from
/// any thread, by several at once.
pub type Filter = Option<Arc<dyn Fn(u64) -> bool + Send + Sync>>;

/// The pair of numbers that names a pool. Both 0 is the default pool.
pub type Name = (u64, u64);

/// All private pools of a device.
#[derive(Default)]
pub struct Pools {
    table: Mutex<Table>,
    /// Length of the table's routes.
    taking: AtomicUsize,
}

#[derive(Default)]
struct Table {
    /// In the order of their names.
    pools: Vec<(Name, Pool)>,
    /// Pools that take requests, in the order they began to.
    routes: Vec<(Name, Filter)>,
}

#[derive(Clone, Copy)]
struct Pool {
    id: PoolId,
    uses: u64,
}

impl Table {
    fn acquire(&mut self, allocator: &Allocator, name: Name) -> Result<(), Failure> {
        self.acquire_or_make(name, || Ok(allocator.add_pool()))
    }

    fn acquire_or_make(
        &mut self,
        name: Name,
        make: impl FnOnce() -> Result<PoolId, BuildError>,
    ) -> Result<(), Failure> {
        if name == (0, 0) {
            let message = "0, 0 is the default pool, which is always there";
            return Err(Failure::new(Status::InvalidValue, message));
        }
        match self.position(name) {
            Ok(at) => self.pools[at].1.uses += 1,
            Err(at) => self.pools.insert(at, (name, Pool { id: make()?, uses: 1 })),
        }
        Ok(())
    }

    /// Where a pool is, or where it would be.
    fn position(&self, name: Name) -> Result<usize, usize> {
        self.pools.binary_search_by_key(&name, |&(name, _)| name)
    }

    fn id_of(&self, name: Name) -> Option<PoolId> {
        self.position(name).ok().map(|at| self.pools[at].1.id)
    }
}

impl Pools {
    /// Takes a use of a pool, which is made if it is not there.
    ///
    /// # Errors
    /// The name is the default pool's.
    pub fn acquire(&self, allocator: &Allocator, name: Name) -> Result<(), Failure> {
        self.table.lock().acquire(allocator, name)
    }

    /// The same for a pool of plain memory: a provider's, if there is one, and split or not.
    ///
    /// # Errors
    /// As `acquire`, and the device has no such pools.
    pub fn acquire_plain(
        &self,
        allocator: &Allocator,
        name: Name,
        provider: Option<Arc<dyn MemoryProvider>>,
        is_split: bool,
    ) -> Result<(), Failure> {
        self.table.lock().acquire_or_make(name, || allocator.add_plain_pool(provider, is_split))
    }

    /// Gives up a use. With the last one the pool is released: its unused memory goes back with the
    /// next trim, its live blocks stay valid.
    ///
    /// # Errors
    /// There is no such pool.
    pub fn release(&self, allocator: &Allocator, name: Name) -> Result<(), Failure> {
        let mut table = self.table.lock();
        let at = table.position(name).map_err(|_| unknown(name))?;
        let (_, pool) = &mut table.pools[at];
        pool.uses -= 1;
        if pool.uses > 0 {
            return Ok(());
        }
        let (_, Pool { id, .. }) = table.pools.remove(at);
        let (gone, kept) = std::mem::take(&mut table.routes).into_iter().partition(|r| r.0 == name);
        table.routes = kept;
        self.taking.store(table.routes.len(), Ordering::Release);
        drop(table);
        // A filter's end is the program's code, too.
        drop::<Vec<_>>(gone);
        allocator.end_captures(id);
        Ok(allocator.release_pool(id)?)
    }

    /// The pool takes the requests that the filter says yes to, from now on, and has one use more.
    ///
    /// # Errors
    /// The name is the default pool's, or the caller is told of memory that moves right now. The
    /// pool is as before.
    pub fn begin(&self, allocator: &Allocator, name: Name, filter: Filter) -> Result<(), Failure> {
        self.acquire(allocator, name)?;
        // PyTorch says so before a capture begins, and at other times.
        let expected = self.find(name).and_then(|id| Ok(allocator.expect_capture(id)?));
        if expected.is_err() {
            self.release(allocator, name)?;
            return expected;
        }
        let mut table = self.table.lock();
        table.routes.push((name, filter));
        self.taking.store(table.routes.len(), Ordering::Release);
        Ok(())
    }

    /// The pool takes no requests any more, by the last *begin* that named it. Its uses stay.
    ///
    /// # Errors
    /// The pool takes no requests.
    pub fn end(&self, allocator: &Allocator, name: Name) -> Result<(), Failure> {
        let mut table = self.table.lock();
        let at = table.routes.iter().rposition(|(route, _)| *route == name).ok_or_else(|| {
            let message = format!("pool {}, {} takes no requests", name.0, name.1);
            Failure::new(Status::UnknownPool, message)
        })?;
        let ended = table.routes.remove(at);
        self.taking.store(table.routes.len(), Ordering::Release);
        let id = table.id_of(name);
        drop(table);
        drop(ended);
        // PyTorch ends a capture before it says so here.
        id.into_iter().for_each(|id| allocator.end_captures(id));
        Ok(())
    }

    /// Whether any pool takes requests.
    #[inline]
    pub fn any_takes_requests(&self) -> bool {
        self.taking.load(Ordering::Acquire) > 0
    }

    /// The pool that takes requests of this stream: the first that began to and whose filter says
    /// yes, or the default pool.
    #[inline]
    pub fn for_stream(&self, stream: u64) -> PoolId {
        if self.any_takes_requests() { self.ask_filters(stream) } else { PoolId::DEFAULT }
    }

    #[cold]
    fn ask_filters(&self, stream: u64) -> PoolId {
        let routes = self.table.lock().routes.clone();
        let takes = |filter: &Filter| filter.as_ref().is_none_or(|takes| takes(stream));
        let taker = routes.iter().find(|(_, filter)| takes(filter));
        let table = self.table.lock();
        taker.and_then(|&(name, _)| table.id_of(name)).unwrap_or(PoolId::DEFAULT)
    }

    /// The pool with this name.
    ///
    /// # Errors
    /// There is no such pool.
    pub fn find(&self, name: Name) -> Result<PoolId, Failure> {
        if name == (0, 0) {
            return Ok(PoolId::DEFAULT);
        }
        self.table.lock().id_of(name).ok_or_else(|| unknown(name))
    }

    /// The name of the pool at a position of the snapshot, if it has one still.
    pub fn name_of(&self, index: usize) -> Option<Name> {
        let table = self.table.lock();
        table.pools.iter().find(|(_, pool)| pool.id.index() == index).map(|(name, _)| *name)
    }
}

fn unknown(name: Name) -> Failure {
    let message = format!("pool {}, {} was never made, or is released", name.0, name.1);
    Failure::new(Status::UnknownPool, message)
}
