//! A library that is loaded late leads others to the driver's functions of its own, as if it had
//! been preloaded: those that are there, and those that come.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use drystone_testkit::{compile_c, simulated_cuda};

use common::{Program, folder, library, passes};

const LAZY: &str = "-Wl,-z,lazy";
/// All is bound at once, and closed then.
const NOW: &str = "-Wl,-z,now,-z,relro";

#[test]
fn libraries_that_were_there_and_those_that_come_get_what_is_unused() {
    let Some(simulated) = simulated_cuda() else { return };
    let place = tempfile::tempdir().unwrap();
    let path = place.path().to_str().unwrap();
    let compile = |source: &str, name: &str, arguments: &[&str]| {
        let source = folder().join("tests/cover").join(source);
        let arguments = [&["-shared", "-fPIC"], arguments].concat();
        compile_c(&source, &place.path().join(name), &simulated, &arguments).unwrap();
    };
    for name in ["lazy.so", "later-lazy.so", "turn-lazy.so"] {
        compile("beside.c", name, &[LAZY, "-lcuda"]);
    }
    for name in ["now.so", "later-now.so", "turn-now.so"] {
        compile("beside.c", name, &[NOW, "-lcuda"]);
    }
    compile("other.c", "libother.so", &["-Wl,-soname,libother.so"]);
    let search = [format!("-L{path}"), format!("-Wl,-rpath,{path}")];
    compile("beside.c", "others.so", &[&search[0], &search[1], "-lother", NOW]);
    for bound in [LAZY, NOW] {
        let named = format!("-DFOLDER=\"{path}\"");
        let program = Program::new("cover/cover.c", &[&named, &search[1], bound]).unwrap();
        let mut command = program.command(None, "memory:1GiB,oracle:true");
        command.env("DRYSTONE", library()).env("DRYSTONE_PRELOAD", "gives-back");
        passes(command);
    }
}
