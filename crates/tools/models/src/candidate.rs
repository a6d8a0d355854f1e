//! [`Candidate`]: the allocators that can be compared, by name and configuration.
//!
//! Invariant: a `Candidate` exists only for a name and a configuration that are valid, so building
//! fails only where the device cannot do what the configuration asks.

use drystone_sim::SimDevice;
use drystone_trace::replay::Replayed;

use crate::drystone::SetUpError;
use crate::{drystone as own, torch, torch_async};

/// Drystone over virtual memory; its configuration is a text as for `DRYSTONE_CONF`.
pub const DRYSTONE_VMM: &str = "drystone-vmm";
/// Drystone over plain device allocations.
pub const DRYSTONE_MALLOC: &str = "drystone-malloc";
/// Drystone over the driver's own memory pools: what it holds is theirs to say.
pub const DRYSTONE_ASYNC: &str = "drystone-async";

/// PyTorch's allocator with segments from `cudaMalloc`; its configuration is a text as for
/// `PYTORCH_CUDA_ALLOC_CONF`.
pub const TORCH_NATIVE: &str = "torch-native";
/// The same with `expandable_segments:True` before the configuration.
pub const TORCH_EXPANDABLE: &str = "torch-expandable";

/// PyTorch's backend `cudaMallocAsync`, over the driver's own memory pool. It has no configuration.
pub const TORCH_ASYNC: &str = "torch-async";

/// The names of all candidates.
pub const NAMES: [&str; 6] =
    [DRYSTONE_VMM, DRYSTONE_MALLOC, DRYSTONE_ASYNC, TORCH_NATIVE, TORCH_EXPANDABLE, TORCH_ASYNC];

/// The names of those that are compared: all but [`DRYSTONE_ASYNC`], whose memory is that of
/// [`TORCH_ASYNC`].
pub const COMPARABLE: [&str; 5] =
    [DRYSTONE_VMM, DRYSTONE_MALLOC, TORCH_NATIVE, TORCH_EXPANDABLE, TORCH_ASYNC];

/// An allocator and its configuration, to be built as often as wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    name: &'static str,
    configuration: String,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Drystone(::drystone::Options),
    Torch(torch::Config),
    TorchAsync,
}

/// Why there is no such candidate.
#[expect(missing_docs, reason = "the text of an error says what each of its parts is")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CandidateError {
    #[error("unknown allocator `{name}`; there are: {}", NAMES.join(", "))]
    UnknownName { name: String },
    #[error("configuration of {name}: {problem}")]
    Drystone { name: &'static str, problem: ::drystone::OptionsError },
    #[error(
        "configuration of {name}: the allocator's name chooses the backend; there are \
         {DRYSTONE_VMM}, {DRYSTONE_MALLOC} and {DRYSTONE_ASYNC}"
    )]
    Backend { name: &'static str },
    #[error("configuration of {name}: none is modelled")]
    None { name: &'static str },
    #[error("configuration of {name}: {problem}")]
    Torch { name: &'static str, problem: torch::ConfigError },
}

impl Candidate {
    /// The candidate of a name, with a configuration; the empty one is the default.
    pub fn named(name: &str, configuration: &str) -> Result<Self, CandidateError> {
        let known = NAMES.into_iter().find(|known| *known == name);
        let name = known.ok_or_else(|| CandidateError::UnknownName { name: name.to_owned() })?;
        let kind = match name {
            DRYSTONE_VMM => own_kind(name, "backend:vmm", configuration)?,
            DRYSTONE_MALLOC => own_kind(name, "backend:malloc", configuration)?,
            DRYSTONE_ASYNC => own_kind(name, "backend:async", configuration)?,
            TORCH_EXPANDABLE => {
                torch_kind(name, &format!("expandable_segments:True,{configuration}"))?
            }
            TORCH_ASYNC if configuration.is_empty() => Kind::TorchAsync,
            TORCH_ASYNC => return Err(CandidateError::None { name }),
            _ => torch_kind(name, configuration)?,
        };
        Ok(Self { name, configuration: configuration.to_owned(), kind })
    }

    /// Its name, one of [`NAMES`].
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its configuration as it was given.
    pub fn configuration(&self) -> &str {
        &self.configuration
    }

    /// A fresh allocator on a device, for a trace with that many streams and pools.
    /// Errors: the device cannot do what the configuration asks.
    pub fn build(
        &self,
        device: &SimDevice,
        streams: u16,
        pools: u8,
    ) -> Result<Box<dyn Replayed>, SetUpError> {
        Ok(match &self.kind {
            Kind::Drystone(options) => Box::new(own::Replay::new(options, device, streams, pools)?),
            Kind::Torch(config) => {
                Box::new(torch::Replay::new(config.clone(), device, streams, pools))
            }
            Kind::TorchAsync => Box::new(torch_async::Replay::new(device, streams)?),
        })
    }
}

fn own_kind(name: &'static str, backend: &str, text: &str) -> Result<Kind, CandidateError> {
    if text.split(',').any(|piece| piece.trim_start().starts_with("backend:")) {
        return Err(CandidateError::Backend { name });
    }
    let options = format!("{backend},{text}").parse();
    options.map(Kind::Drystone).map_err(|problem| CandidateError::Drystone { name, problem })
}

fn torch_kind(name: &'static str, text: &str) -> Result<Kind, CandidateError> {
    let config = torch::Config::parse(text);
    config.map(Kind::Torch).map_err(|problem| CandidateError::Torch { name, problem })
}

#[cfg(test)]
mod tests {
    use super::{Candidate, NAMES};
    use drystone_sim::{SimConfig, SimDevice};

    #[test]
    fn every_name_builds_an_allocator_that_serves() {
        for name in NAMES {
            let device = SimDevice::new(SimConfig::default());
            let mut allocator = Candidate::named(name, "").unwrap().build(&device, 2, 1).unwrap();
            let address = allocator.allocate(1000, 1, 0).unwrap();
            assert_eq!(allocator.usage().allocated_bytes, 1024, "{name}");
            allocator.free(address);
            allocator.empty_cache();
            assert_eq!(device.physical_bytes(), 0, "{name}");
            assert!(allocator.driver_cost().time_us > 0.0, "{name}");
        }
    }

    #[test]
    fn what_cannot_be_built_says_why() {
        let message = |name, text| Candidate::named(name, text).unwrap_err().to_string();
        assert!(message("drystone-vmm", "backend:malloc").contains("drystone-malloc"));
        assert_eq!(
            message("torch", ""),
            "unknown allocator `torch`; there are: drystone-vmm, drystone-malloc, drystone-async, \
             torch-native, torch-expandable, torch-async"
        );
        assert!(message("torch-async", "x:1").ends_with("none is modelled"));
        assert_eq!(
            message("torch-expandable", "max_split_size_mb:1"),
            "configuration of torch-expandable: bad value `1` of `max_split_size_mb`: give a whole \
             number of MiB, 20 or more"
        );
    }
}
