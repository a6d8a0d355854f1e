//! A program of `engines/`, and how all of them are built.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;

use super::patched;
use super::toolkit::{Toolkit, engines_target, manifest};
use crate::{capi, command};

/// A crate of `engines/`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// The cheapest to build.
    Candle,
    Burn,
    Kornia,
    /// It takes longest to build.
    Mistral,
}

impl Engine {
    /// Its package is `engine-NAME`, its programs `NAME-plain` and `NAME-installed`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Candle => "candle",
            Self::Burn => "burn",
            Self::Kornia => "kornia",
            Self::Mistral => "mistral",
        }
    }

    /// Of the workspace that it is in.
    fn manifest(self) -> PathBuf {
        match self {
            Self::Candle | Self::Burn | Self::Kornia => manifest(),
            Self::Mistral => manifest().with_file_name("mistral/Cargo.toml"),
        }
    }
}

/// A program of `engines/`, and what it does.
pub struct Program {
    /// As in the table.
    pub name: &'static str,
    pub engine: Engine,
    pub arguments: [&'static str; 2],
    /// Memory of the device: ample.
    pub memory: &'static str,
    /// Whether cubecl is patched.
    pub is_patched: bool,
    /// What it may hold over what it asks for, with `prefer:memory`.
    pub most_held: f64,
}

impl Program {
    /// Where it is, and where it runs.
    pub fn folder(&self) -> PathBuf {
        if self.is_patched { patched::folder() } else { engines_target().join("debug") }
    }
}

/// The engines, built as they are and with the call of `install`, and what is preloaded.
pub struct Built {
    pub toolkit: Toolkit,
    pub preload: PathBuf,
}

impl Built {
    pub fn new(engines: &[Engine]) -> Result<Self> {
        let toolkit = Toolkit::make()?;
        // First, for the programs of the same names take their places.
        if engines.contains(&Engine::Burn) {
            patched::build(&toolkit)?;
        }
        for engine in engines {
            let mut cargo = toolkit.cargo()?;
            cargo.args(["build", "--locked", "--package", &format!("engine-{}", engine.name())]);
            cargo.arg("--manifest-path").arg(engine.manifest());
            cargo.arg("--target-dir").arg(engines_target());
            command::run(cargo)?;
        }
        Ok(Self { toolkit, preload: capi::assemble(None)?.join(capi::PRELOAD) })
    }
}
