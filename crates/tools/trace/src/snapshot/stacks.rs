//! Stacks of frames, each kept once.
//!
//! Invariant: equal frames have one number, and equal stacks have one number.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

/// Number of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub(crate) u32);

/// A place in a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Path of the source file.
    pub filename: Arc<str>,
    /// Line in it.
    pub line: u64,
    /// Name of the function.
    pub name: Arc<str>,
    /// Further keys, such as `fx_node_name`.
    pub more: Map<String, Value>,
}

/// All stacks of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Stacks {
    frames: Vec<Frame>,
    frame_numbers: HashMap<Frame, u32>,
    /// Numbers of frames, stack after stack, innermost frame first.
    items: Vec<u32>,
    /// Where each stack ends in `items`.
    ends: Vec<usize>,
    stack_numbers: HashMap<Box<[u32]>, StackId>,
}

/// Two tables are equal if they hold the same stacks under the same numbers.
impl PartialEq for Stacks {
    fn eq(&self, other: &Self) -> bool {
        self.frames == other.frames && self.items == other.items && self.ends == other.ends
    }
}

impl Stacks {
    /// The number of a frame, new or known.
    pub fn add_frame(&mut self, frame: Frame) -> u32 {
        if let Some(&number) = self.frame_numbers.get(&frame) {
            return number;
        }
        // Cannot truncate: 2^32 frames do not fit in memory.
        let number = self.frames.len() as u32;
        self.frames.push(frame.clone());
        self.frame_numbers.insert(frame, number);
        number
    }

    /// The number of a stack, new or known; its frames are numbers from
    /// [`add_frame`](Self::add_frame), innermost first.
    pub fn add(&mut self, frames: &[u32]) -> StackId {
        if let Some(&stack) = self.stack_numbers.get(frames) {
            return stack;
        }
        let stack = StackId(self.ends.len() as u32);
        self.items.extend_from_slice(frames);
        self.ends.push(self.items.len());
        self.stack_numbers.insert(frames.into(), stack);
        stack
    }

    /// How many different stacks there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The numbers of a stack's frames, innermost first; empty if there is no such stack.
    pub fn frame_numbers(&self, stack: StackId) -> &[u32] {
        let index = stack.0 as usize;
        let Some(&end) = self.ends.get(index) else { return &[] };
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.items[start..end]
    }

    /// A stack's frames, innermost first.
    pub fn frames(&self, stack: StackId) -> impl Iterator<Item = &Frame> {
        self.frame_numbers(stack).iter().filter_map(|number| self.frame(*number))
    }

    /// A frame by its number.
    pub fn frame(&self, number: u32) -> Option<&Frame> {
        self.frames.get(number as usize)
    }
}

impl StackId {
    /// The number, counted from 0.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
