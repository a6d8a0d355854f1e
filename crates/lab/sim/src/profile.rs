//! [`Profile`]: devices to choose by name, as users have them, each with where that is known from.

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
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::BareMetal, Self::Wsl2, Self::VirtualGpu, Self::Mig, Self::SlowMemoryInfo];

    /// The name in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BareMetal => "bare-metal",
            Self::Wsl2 => "wsl2",
            Self::VirtualGpu => "virtual-gpu",
            Self::Mig => "mig",
            Self::SlowMemoryInfo => "slow-memory-info",
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
        }
    }
}
