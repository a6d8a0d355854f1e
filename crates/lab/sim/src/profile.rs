//! [`Profile`]: devices to choose by name, as users have them, each with where that is known from.

use crate::GRANULARITY_BYTES;
use crate::config::Host;
use crate::config::{NetworkMemory, SimConfig};

/// A kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Linux on bare metal: everything works, memory for network cards too.
    BareMetal,
    /// Linux under Windows. Memory for network cards is created and mapped, and its access refused
    /// (pytorch/pytorch#192330); addresses for 32 GB are refused
    /// (withcatai/node-llama-cpp#610).
    Wsl2,
    /// A virtual GPU without unified memory: no virtual memory, and no memory pools, which need it
    /// (NVIDIA vGPU user guide, features that depend on unified memory).
    VirtualGpu,
    /// A part of an A100 or H100: 10 GiB, and no peers (NVIDIA MIG user guide, limitations).
    Mig,
    /// A driver that takes 8 ms to say what memory is free (sgl-project/sglang#25225).
    SlowMemoryInfo,
    /// No memory of its own, but the host's, of which programs have a part; without peers. File
    /// pages make no large handles, and the host stops where nothing is left: `Host` says from
    /// where that is known.
    Unified,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::BareMetal,
        Self::Wsl2,
        Self::VirtualGpu,
        Self::Mig,
        Self::SlowMemoryInfo,
        Self::Unified,
    ];

    /// The name in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BareMetal => "bare-metal",
            Self::Wsl2 => "wsl2",
            Self::VirtualGpu => "virtual-gpu",
            Self::Mig => "mig",
            Self::SlowMemoryInfo => "slow-memory-info",
            Self::Unified => "unified",
        }
    }

    /// The profile of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// A device like `config` that is of this kind.
    #[must_use]
    pub fn applied_to(self, config: SimConfig) -> SimConfig {
        match self {
            Self::BareMetal => SimConfig { network_memory: NetworkMemory::Works, ..config },
            Self::Wsl2 => SimConfig {
                network_memory: NetworkMemory::Broken,
                reservation_limit_bytes: (32 << 30) - 1,
                ..config
            },
            Self::VirtualGpu => SimConfig {
                has_virtual_memory: false,
                has_async_malloc: false,
                is_shareable: false,
                ..config
            },
            Self::Mig => SimConfig { total_bytes: 10 << 30, has_peers: false, ..config },
            Self::SlowMemoryInfo => SimConfig { memory_info_ns: 8_000_000, ..config },
            Self::Unified => SimConfig {
                has_peers: false,
                host: Some(Host {
                    // 4 and 2 GiB of a DGX Spark's 121.6.
                    programs_bytes: config.total_bytes / 32,
                    line_bytes: config.total_bytes / 64,
                    handle_bytes: GRANULARITY_BYTES,
                    root: None,
                }),
                ..config
            },
        }
    }
}
