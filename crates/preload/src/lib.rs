//! `libdrystone_preload.so`: programs that it is preloaded to get Drystone's memory where they ask
//! the CUDA driver for some in stream order, themselves or through the runtime. What serves them is
//! `drystone-interpose`, whose functions are exported here, by CUDA's names. The C interface of
//! `libdrystone.so` is, too, so that programs can be looked into.
//!
//! `place`: where this library stands among others. `registration`: memory that libraries register
//! by its address. `lookup`: how programs that look for functions find ours. `object`: what the
//! loader keeps for a library. `cover`: how libraries find ours that were loaded before, where ours
//! was not preloaded.

extern crate drystone_capi as _;

mod cover;
mod lookup;
mod object;
mod place;
mod registration;

/// What the library does: serves, unless it says [`GIVES_BACK`].
const VARIABLE: &str = "DRYSTONE_PRELOAD";
/// Where the program's own allocator is Drystone already, as in PyTorch: libraries beside it get
/// what it holds unused.
const GIVES_BACK: &str = "gives-back";

/// Run by the loader, with the initialisers of the libraries that the program needs.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    if std::env::var_os(VARIABLE).is_some_and(|mode| mode == GIVES_BACK) {
        drystone_interpose::give_back();
    } else {
        drystone_interpose::serve();
    }
}
