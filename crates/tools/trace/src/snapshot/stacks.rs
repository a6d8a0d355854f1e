//! Stacks of frames: [`Stacks`], and [`DistinctStacks`], which has each once.

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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stacks {
    frames: Vec<Frame>,
    /// Numbers of frames, stack after stack, innermost frame first.
    items: Vec<u32>,
    /// Where each stack ends in `items`.
    ends: Vec<usize>,
}

impl Stacks {
    /// The number of a new frame.
    pub fn push_frame(&mut self, frame: Frame) -> u32 {
        self.frames.push(frame);
        // Cannot truncate: 2^32 frames do not fit in memory.
        (self.frames.len() - 1) as u32
    }

    /// The number of a new stack; its frames are numbers, innermost first.
    pub fn push(&mut self, frames: &[u32]) -> StackId {
        self.items.extend_from_slice(frames);
        self.ends.push(self.items.len());
        StackId((self.ends.len() - 1) as u32)
    }

    /// How many stacks there are.
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

/// Stacks that may come again: equal frames have one number, and equal stacks have one number.
#[derive(Debug, Default)]
pub struct DistinctStacks {
    stacks: Stacks,
    frame_numbers: HashMap<Frame, u32>,
    stack_numbers: HashMap<Box<[u32]>, StackId>,
}

impl DistinctStacks {
    /// The number of a frame, new or known.
    pub fn add_frame(&mut self, frame: Frame) -> u32 {
        let Self { stacks, frame_numbers, .. } = self;
        let new = |frame: &Frame| stacks.push_frame(frame.clone());
        *frame_numbers.entry(frame).or_insert_with_key(new)
    }

    /// The number of a stack, new or known; its frames are numbers from
    /// [`add_frame`](Self::add_frame), innermost first.
    pub fn add(&mut self, frames: &[u32]) -> StackId {
        if let Some(&stack) = self.stack_numbers.get(frames) {
            return stack;
        }
        let stack = self.stacks.push(frames);
        self.stack_numbers.insert(frames.into(), stack);
        stack
    }

    /// All of them.
    pub fn into_stacks(self) -> Stacks {
        self.stacks
    }
}

impl StackId {
    /// The number, counted from 0.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
