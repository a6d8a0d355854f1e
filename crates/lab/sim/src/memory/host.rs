//! [`HostMemory`]: the memory of the host, which a device without memory of its own takes from.
//!
//! Programs and the page cache take from it, too. The kernel gives file pages up for whoever asks,
//! so `MemAvailable` counts them as free and `MemFree` does not (unslothai/unsloth#10705 has both
//! on a GB10). Such pages lie scattered: after a checkpoint was read, no free blocks of 2 MiB were
//! left, and the driver failed (tonyd2wild/GLM-5.3-Flash-NVFP4-DFlash2-2x-DGX-Spark#19). A host
//! that is short of memory stops with its driver, until somebody turns it off
//! (NVIDIA/open-gpu-kernel-modules#1358).
//!
//! Assumed: that the host stops at one line, and that the driver refuses a handle by its size.

use crate::config::Host;
use drystone_driver::ErrorCode;

use crate::refuse::refuse;

#[derive(Debug)]
pub(crate) struct HostMemory {
    host: Host,
    total_bytes: u64,
    programs_bytes: u64,
    /// Of files, most: what others take of it is taken off when it is looked at.
    cached_bytes: u64,
    lowest_bytes: u64,
    is_stopped: bool,
    told: Option<[u64; 2]>,
}

impl HostMemory {
    pub(crate) fn new(host: Host, total_bytes: u64) -> Self {
        Self {
            total_bytes,
            programs_bytes: host.programs_bytes,
            cached_bytes: 0,
            lowest_bytes: total_bytes.saturating_sub(host.programs_bytes),
            is_stopped: false,
            told: None,
            host,
        }
    }

    /// `MemAvailable`, where the device has so much.
    pub(crate) const fn available_bytes(&self, device_bytes: u64) -> u64 {
        self.total_bytes.saturating_sub(device_bytes).saturating_sub(self.programs_bytes)
    }

    /// `MemFree`.
    pub(crate) const fn free_bytes(&self, device_bytes: u64) -> u64 {
        self.available_bytes(device_bytes).saturating_sub(self.cached_bytes)
    }

    /// The least that ever was available.
    pub(crate) const fn lowest_bytes(&self) -> u64 {
        self.lowest_bytes
    }

    pub(crate) const fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Gives the device a handle.
    pub(crate) fn check_handle(&self, device_bytes: u64, bytes: u64) -> Result<(), ErrorCode> {
        let is_scattered = bytes > self.free_bytes(device_bytes) && bytes > self.host.handle_bytes;
        if is_scattered { Err(ErrorCode::OutOfMemory) } else { Ok(()) }
    }

    /// Gives memory to the device or a program.
    pub(crate) fn take(&mut self, device_bytes: u64, bytes: u64) -> Result<(), ErrorCode> {
        refuse(ErrorCode::OutOfMemory, bytes > self.total_bytes)?;
        let left_bytes = self.available_bytes(device_bytes).checked_sub(bytes);
        self.is_stopped |= left_bytes.is_none_or(|left| left < self.host.line_bytes);
        let left_bytes = left_bytes.unwrap_or(0);
        self.lowest_bytes = self.lowest_bytes.min(left_bytes);
        refuse(ErrorCode::ContextLost, self.is_stopped)?;
        self.cached_bytes = self.cached_bytes.min(left_bytes);
        Ok(())
    }

    /// Programs of the host take or give back memory.
    pub(crate) fn set_programs(&mut self, device_bytes: u64, bytes: u64) {
        let more_bytes = bytes.saturating_sub(self.programs_bytes);
        // The host has stopped, or it has not.
        let _ = self.take(device_bytes, more_bytes);
        self.programs_bytes = bytes;
    }

    /// Files are read, which takes all that is free, and no more.
    pub(crate) fn read_files(&mut self, device_bytes: u64, bytes: u64) {
        let most_bytes = self.available_bytes(device_bytes);
        self.cached_bytes = self.cached_bytes.saturating_add(bytes).min(most_bytes);
    }

    /// Writes what the kernel would say, if that has changed.
    pub(crate) fn tell(&mut self, device_bytes: u64) {
        let now = [self.free_bytes(device_bytes), self.available_bytes(device_bytes)];
        let Some(root) = self.host.root.as_ref().filter(|_| self.told != Some(now)) else { return };
        self.told = Some(now);
        let [total, free, available] = [self.total_bytes, now[0], now[1]].map(|bytes| bytes >> 10);
        let text =
            format!("MemTotal: {total} kB\nMemFree: {free} kB\nMemAvailable: {available} kB\n");
        let (folder, name) = (root.join("proc"), root.join("proc/meminfo"));
        let written = std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(folder.join("meminfo.new"), text))
            .and_then(|()| std::fs::rename(folder.join("meminfo.new"), name));
        if let Err(error) = written {
            eprintln!("simulated host: {}: {error}", folder.display());
        }
    }
}
