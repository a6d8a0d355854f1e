//! [`Node`]: a piece of work, as a graph remembers it.

use std::ffi::c_void;
use std::sync::Arc;

/// A pointer that goes along with a function it is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserData(pub(crate) *mut c_void);

// SAFETY: the API hands the pointer to the program's function unread, from whatever thread.
unsafe impl Send for UserData {}
// SAFETY: as above.
unsafe impl Sync for UserData {}

/// Work, as a graph remembers it.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Kernel,
    Copy { to: u64, from: u64, bytes: u64 },
    Set { to: u64, value: u32, width: usize, count: u64 },
    Host { function: unsafe extern "C" fn(*mut c_void), data: UserData },
    Child { nodes: Arc<[Node]> },
    Empty,
    Allocate,
    Free,
}

impl Node {
    /// `CUgraphNodeType`
    pub(crate) const fn kind(&self) -> i32 {
        match self {
            Node::Kernel => 0,
            Node::Copy { .. } => 1,
            Node::Set { .. } => 2,
            Node::Host { .. } => 3,
            Node::Child { .. } => 4,
            Node::Empty => 5,
            Node::Allocate => 10,
            Node::Free => 11,
        }
    }
}
