//! [`Modules`]: modules, libraries and their functions. Every name is a function of every module.

use crate::abi::Raw;
use crate::status::{INVALID_HANDLE, INVALID_VALUE, Outcome};
use drystone_sim::HandleTable;
use std::collections::HashMap;
use std::ffi::CString;

/// A function of a module or a kernel of a library; one handle serves as either.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) name: CString,
    pub(crate) owner: Raw,
    pub(crate) attributes: HashMap<i32, i32>,
}

/// A module, or a library, which is of no context.
#[derive(Debug)]
struct Module {
    context: Option<Raw>,
    /// Values of its functions so far.
    functions: Vec<u64>,
}

/// All code of a device, by the values of the handles.
#[derive(Debug)]
pub(crate) struct Modules {
    modules: HandleTable<Module>,
    kernels: HandleTable<Kernel>,
    pub(crate) links: HandleTable<()>,
}

impl Default for Modules {
    fn default() -> Self {
        Self {
            modules: HandleTable::new(16),
            kernels: HandleTable::new(16),
            links: HandleTable::new(16),
        }
    }
}

impl Modules {
    pub(crate) fn kernel(&self, value: u64) -> Outcome<&Kernel> {
        self.kernels.get(value).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn kernel_mut(&mut self, value: u64) -> Outcome<&mut Kernel> {
        self.kernels.get_mut(value).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn load(&mut self, context: Option<Raw>) -> u64 {
        self.modules.insert(Module { context, functions: Vec::new() })
    }

    pub(crate) fn unload(&mut self, value: u64) -> Outcome {
        for kernel in self.modules.remove(value).ok_or(INVALID_HANDLE)?.functions {
            self.kernels.remove(kernel);
        }
        Ok(())
    }

    pub(crate) fn end_context(&mut self, context: Raw) {
        let is_its = |&value: &u64| {
            self.modules.get(value).is_some_and(|module| module.context == Some(context))
        };
        let gone: Vec<u64> = self.modules.values().filter(is_its).collect();
        for value in gone {
            let _ = self.unload(value);
        }
    }

    pub(crate) fn functions(&self, value: u64) -> Outcome<&[u64]> {
        self.modules.get(value).map(|module| &*module.functions).ok_or(INVALID_HANDLE)
    }

    /// The function of this name, the same at every call.
    pub(crate) fn function(&mut self, value: u64, owner: Raw, name: &str) -> Outcome<u64> {
        let name = CString::new(name).map_err(|_| INVALID_VALUE)?;
        let own = &mut self.modules.get_mut(value).ok_or(INVALID_HANDLE)?.functions;
        let is_it = |kernel: &&u64| self.kernels.get(**kernel).is_some_and(|one| one.name == name);
        if let Some(&known) = own.iter().find(is_it) {
            return Ok(known);
        }
        let fresh = self.kernels.insert(Kernel { name, owner, attributes: HashMap::new() });
        own.push(fresh);
        Ok(fresh)
    }
}
