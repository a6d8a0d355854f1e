//! All that is known of one device of one file.

use anyhow::Result;
use drystone_trace::metrics::{Holder, Summary, holders};
use drystone_trace::model::Trace;

use super::held::Held;
use super::refused::Refused;
use super::replayed::{self, Replayed};

#[derive(Debug, serde::Serialize)]
pub(super) struct Answer {
    pub(super) file: String,
    pub(super) trace: String,
    pub(super) summary: Summary,
    /// Blocks that were live before recording began.
    pub(super) live_at_start: u32,
    /// The most memory that the recorded allocator held, in bytes; 0 where that is not recorded.
    pub(super) peak_reserved_bytes: u64,
    /// Who held the peak, most bytes first; of a snapshot without history, what is live.
    pub(super) holders: Vec<Holder>,
    /// When the snapshot was taken; absent for a trace.
    pub(super) held: Option<Held>,
    /// The last request that failed.
    pub(super) refused: Option<Refused>,
    /// The program through each allocator.
    pub(super) replayed: Vec<Replayed>,
}

impl Answer {
    pub(super) fn of(file: &str, mut trace: Trace) -> Result<Self> {
        let summary = Summary::of(&trace);
        let refused = Refused::last_of(&trace);
        let moment = refused.as_ref().map_or(summary.peak_event, |refused| refused.event);
        let holders = holders(&trace, moment);
        let recording = trace.recording.take();
        let held = recording.as_ref().map(|recording| Held::of(recording, refused.as_ref()));
        let capacity_bytes = refused.as_ref().and_then(|refused| refused.device_bytes);
        Ok(Self {
            file: file.to_owned(),
            trace: trace.name.clone(),
            live_at_start: recording.as_ref().map_or(0, |recording| recording.live_at_start),
            peak_reserved_bytes: recording.as_ref().map_or(0, |held| held.peak_reserved_bytes()),
            holders,
            held,
            refused,
            replayed: replayed::all(&trace, capacity_bytes)?,
            summary,
        })
    }
}
