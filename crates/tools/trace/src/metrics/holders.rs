//! Who holds the memory at a moment: live blocks of a recording, grouped by where in the program
//! they were asked for.

use std::collections::BTreeMap;

use super::summary::live_at;
use crate::model::Trace;
use crate::snapshot::{Frame, Recording, StackId};

/// Live blocks that were asked for at one place.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Holder {
    /// Their requested bytes.
    pub bytes: u64,
    /// How many there are.
    pub blocks: u64,
    /// The innermost frame of Python, else of anything, as `file:line function`; absent where no
    /// frame was recorded.
    pub at: Option<String>,
    /// The innermost frame of Python outside PyTorch itself, where it is another one.
    pub from: Option<String>,
}

/// The live blocks right after event `index`, most bytes first; empty for a trace that was not
/// recorded.
pub fn holders(trace: &Trace, index: usize) -> Vec<Holder> {
    let Some(recording) = &trace.recording else { return Vec::new() };
    let mut groups: BTreeMap<(Option<String>, Option<String>), (u64, u64)> = BTreeMap::new();
    for (at, event) in live_at(trace, index) {
        let stack = recording.stacks.get(at).copied().flatten();
        let group = groups.entry(stack.map_or((None, None), |s| places(recording, s)));
        let (bytes, blocks) = group.or_default();
        *bytes = bytes.saturating_add(event.bytes);
        *blocks += 1;
    }
    let holder = |((at, from), (bytes, blocks))| Holder { bytes, blocks, at, from };
    let mut holders: Vec<Holder> = groups.into_iter().map(holder).collect();
    // Stable, so that equal ones stay in the order of their places.
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
    holders
}

/// The innermost frame of a stack, and the innermost one outside PyTorch: of Python, where there
/// are any, since PyTorch records those of C++ before them.
fn places(recording: &Recording, stack: StackId) -> (Option<String>, Option<String>) {
    let frames = || recording.snapshot.stacks.frames(stack);
    let is_python = |frame: &&Frame| {
        let name = &frame.filename;
        // `<string>`, `<stdin>` and their kin; C++ that has no file is `??`.
        name.ends_with(".py") || name.starts_with('<')
    };
    let is_program = |frame: &&Frame| is_python(frame) && !frame.filename.contains("/torch/");
    let at = frames().find(is_python).or_else(|| frames().next()).map(place);
    let from = frames().find(is_program).map(place);
    let from = from.filter(|from| at.as_ref() != Some(from));
    (at, from)
}

/// `models/resnet.py:147 forward`: the last two folders are enough to find it. Where there is no
/// line, such as of a tag, `tag kv`.
fn place(frame: &Frame) -> String {
    let from = frame.filename.rmatch_indices('/').nth(1).map_or(0, |(index, _)| index + 1);
    let line = if frame.line > 0 { format!(":{}", frame.line) } else { String::new() };
    format!("{}{line} {}", &frame.filename[from..], frame.name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Holder, holders};
    use crate::model::{Event, Kind, Trace};
    use crate::snapshot::{Frame, Recording, Snapshot};

    fn frame(filename: &str, line: u64, name: &str) -> Frame {
        Frame { filename: filename.into(), line, name: name.into(), ..Frame::default() }
    }

    fn allocate(block: u32, bytes: u64) -> Event {
        Event { time_ns: 0, bytes, block, stream: 0, pool: 0, kind: Kind::Allocate }
    }

    #[test]
    fn frames_of_cpp_are_nobodys_place() {
        let mut snapshot = Snapshot::default();
        let [unwind, empty] = [
            frame("??", 0, "torch::unwind::unwind()"),
            frame("/build/aten/src/ATen/EmptyTensor.cpp", 77, "at::detail::empty_generic()"),
        ]
        .map(|one| snapshot.stacks.push_frame(one));
        let [layer, main] =
            [frame("/a/lib/torch/nn/linear.py", 7, "forward"), frame("<string>", 3, "<module>")]
                .map(|one| snapshot.stacks.push_frame(one));
        let with_python = snapshot.stacks.push(&[unwind, empty, layer, main]);
        let without = snapshot.stacks.push(&[empty, unwind]);
        let tag = snapshot.stacks.push_frame(frame("tag", 0, "kv"));
        let tag = snapshot.stacks.push(&[tag]);
        let recording = Recording { snapshot: Arc::new(snapshot), ..Recording::default() };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            super::places(&recording, with_python),
            (text("nn/linear.py:7 forward"), text("<string>:3 <module>"))
        );
        let native = (text("ATen/EmptyTensor.cpp:77 at::detail::empty_generic()"), None);
        assert_eq!(super::places(&recording, without), native);
        assert_eq!(super::places(&recording, tag), (text("tag kv"), None));
    }

    #[test]
    fn groups_by_place_and_counts_what_is_live() {
        let mut snapshot = Snapshot::default();
        let inner = snapshot.stacks.push_frame(frame("/a/lib/torch/nn/linear.py", 7, "forward"));
        let outer = snapshot.stacks.push_frame(frame("/home/me/train.py", 3, "main"));
        let both = snapshot.stacks.push(&[inner, outer]);
        let own = snapshot.stacks.push(&[outer]);
        let mut events = vec![allocate(0, 100), allocate(1, 50), allocate(2, 60), allocate(3, 9)];
        events.push(Event { kind: Kind::Free, ..allocate(0, 100) });
        let recording = Recording {
            snapshot: Arc::new(snapshot),
            stacks: vec![Some(own), Some(both), Some(both), None, None],
            ..Recording::default()
        };
        let recording = Some(Box::new(recording));
        let trace =
            Trace { events, blocks: 4, streams: 1, pools: 1, recording, ..Trace::default() };
        let holder = |bytes, blocks, at: Option<&str>, from: Option<&str>| Holder {
            bytes,
            blocks,
            at: at.map(str::to_owned),
            from: from.map(str::to_owned),
        };
        let linear = Some("nn/linear.py:7 forward");
        let main = Some("me/train.py:3 main");
        let expected = [holder(110, 2, linear, main), holder(9, 1, None, None)];
        assert_eq!(holders(&trace, 4), expected);
        let expected =
            [holder(110, 2, linear, main), holder(100, 1, main, None), holder(9, 1, None, None)];
        assert_eq!(holders(&trace, 3), expected);
        assert_eq!(holders(&Trace { recording: None, ..trace }, 3), []);
    }
}
