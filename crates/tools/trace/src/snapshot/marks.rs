//! Names of annotations that tell what PyTorch's recorder has no entry for.
//!
//! A program leaves them with `torch.profiler.record_function` around its own calls; a replay that
//! is written as a snapshot leaves them, too. Invariant: [`Mark::of`] reads what [`Mark::name`]
//! writes.

use super::parts::PoolId;

/// What an annotation of a known name stands around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// `torch.cuda.synchronize`: the host waits until the device is idle.
    HostWait,
    /// `torch.cuda.empty_cache`: the cache is given back.
    EmptyCache,
    /// `torch.cuda.graph stream=94 pool=0,1`: a capture of a stream, by its handle, whose requests
    /// a pool serves.
    Capture {
        /// The stream's handle.
        stream: u64,
        /// The pool.
        pool: PoolId,
    },
}

const HOST_WAIT: &str = "torch.cuda.synchronize";
const EMPTY_CACHE: &str = "torch.cuda.empty_cache";
const CAPTURE: &str = "torch.cuda.graph";

impl Mark {
    /// The mark of a name, if it is one.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            HOST_WAIT => return Some(Self::HostWait),
            EMPTY_CACHE => return Some(Self::EmptyCache),
            _ => {}
        }
        let numbers = name.strip_prefix(CAPTURE)?.strip_prefix(" stream=")?;
        let (stream, pool) = numbers.split_once(" pool=")?;
        let (first, second) = pool.split_once(',')?;
        let pool = PoolId(first.parse().ok()?, second.parse().ok()?);
        Some(Self::Capture { stream: stream.parse().ok()?, pool })
    }

    /// Its name.
    pub fn name(self) -> String {
        match self {
            Self::HostWait => HOST_WAIT.into(),
            Self::EmptyCache => EMPTY_CACHE.into(),
            Self::Capture { stream, pool } => {
                format!("{CAPTURE} stream={stream} pool={},{}", pool.0, pool.1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Mark, PoolId};

    #[test]
    fn a_name_is_read_as_it_is_written() {
        let capture = Mark::Capture { stream: u64::MAX, pool: PoolId(0, 7) };
        for mark in [Mark::HostWait, Mark::EmptyCache, capture] {
            assert_eq!(Mark::of(&mark.name()), Some(mark));
        }
        for other in ["", "torch.cuda.graph", "torch.cuda.graph stream=1", "ProfilerStep#1"] {
            assert_eq!(Mark::of(other), None);
        }
        assert_eq!(Mark::of("torch.cuda.graph stream=x pool=0,1"), None);
    }
}
