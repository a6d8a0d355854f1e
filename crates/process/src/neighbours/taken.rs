//! [`Taken`]: what this process was given of late, and so may wish for beyond what it lacks.

use super::board::now_ms;

/// For how long whoever was given memory is asked after all others: so that it does not go to and
/// fro.
pub(super) const KEPT_MS: u64 = 1000;

/// What this process was given in a row: each time within [`KEPT_MS`] of the last one.
#[derive(Default)]
pub(super) struct Taken {
    bytes: u64,
    last_ms: u64,
}

impl Taken {
    /// A program that grows wishes for as much again as it was given, up to this part of the
    /// device: so it asks a few times, and what is free meanwhile has room for large handles.
    const BEYOND_SHARE: u64 = 16;

    /// How much is wished beyond what lacks.
    pub(super) fn beyond_bytes(&self, device_bytes: u64) -> u64 {
        self.in_a_row(now_ms()).min(device_bytes / Self::BEYOND_SHARE)
    }

    pub(super) fn note(&mut self, bytes: u64) {
        let now = now_ms();
        *self = Self { bytes: self.in_a_row(now).saturating_add(bytes), last_ms: now };
    }

    const fn in_a_row(&self, now_ms: u64) -> u64 {
        if now_ms.saturating_sub(self.last_ms) < KEPT_MS { self.bytes } else { 0 }
    }
}
