//! The committed header is what the exported functions say, and compiles as C and as C++.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set to write the header anew instead of comparing.
const BLESS: &str = "DRYSTONE_BLESS";

const LINE_LENGTH: usize = 100;

const INTRODUCTION: &str = "\
/* Drystone, a CUDA caching allocator: the C interface of libdrystone.so.
 *
 * Made by cbindgen of crates/capi/src; do not edit. docs/use/c-api.md tells what holds for all of
 * it.
 *
 * Every function may be called from any thread, at any time, in any order, with any argument: what
 * it cannot do it refuses with a status, changes nothing, and keeps the reason as the calling
 * thread's last error. Statuses are named here without DRYSTONE_STATUS_; INTERNAL is possible
 * everywhere, POISONED after it, DEVICE_RESET wherever memory is asked for, and FILE_ERROR from the
 * first request of a process that records. The exceptions are pointers that a function reads or
 * writes through, which must be what it says, and streams, which the driver must still know. Signal
 * handlers may call nothing here, nor may host functions of a stream, which may not use CUDA. Once
 * the process exits, frees succeed and everything else fails with EXITING; in a forked child
 * everything fails with FORKED, unless the parent had not used CUDA.
 *
 * Streams are cudaStream_t or CUstream; neither of CUDA's headers is needed. A program that is
 * linked with the library asks for libdrystone.so.1: the number is that of the binary interface. */
";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn generated() -> String {
    let mut config = cbindgen::Config::from_file(folder().join("cbindgen.toml")).unwrap();
    config.header = Some(INTRODUCTION.to_owned());
    config.after_includes = Some(format!(
        "\n/* The version of this header. */\n\
         #define DRYSTONE_VERSION_MAJOR {major}\n\
         #define DRYSTONE_VERSION_MINOR {minor}\n\
         #define DRYSTONE_VERSION_PATCH {patch}\n\
         #define DRYSTONE_VERSION \\\n    \
         (DRYSTONE_VERSION_MAJOR * 1000000 + DRYSTONE_VERSION_MINOR * 1000 \\\n     \
         + DRYSTONE_VERSION_PATCH)",
        major = env!("CARGO_PKG_VERSION_MAJOR"),
        minor = env!("CARGO_PKG_VERSION_MINOR"),
        patch = env!("CARGO_PKG_VERSION_PATCH"),
    ));
    // In the order in which a reader wants them.
    let modules = [
        "status",
        "streams",
        "about",
        "memory",
        "growable",
        "plugin",
        "torch",
        "holders",
        "shortage",
        "control",
        "events",
        "pins",
        "tags",
        "share",
        "statistics",
        "pool_stream_stats",
        "layout",
        "memory_provider",
    ];
    let paths = modules.iter().map(|module| match *module {
        "status" => folder().join("../process/src/status.rs"),
        own => folder().join(format!("src/{own}.rs")),
    });
    let builder = paths.fold(cbindgen::Builder::new(), cbindgen::Builder::with_src);
    let mut text = Vec::new();
    builder.with_config(config).generate().unwrap().write(&mut text);
    tidy(&String::from_utf8(text).unwrap())
}

/// What Rust calls safety is in C what a pointer must be. Comments of one line take one line.
fn tidy(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut tidied = String::new();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at].replace("# Safety", "Pointers:");
        let is_short = line.trim() == "/**"
            && lines.get(at + 2).is_some_and(|end| end.trim() == "*/")
            && lines[at + 1].len() + 4 <= LINE_LENGTH;
        if is_short {
            let words = lines[at + 1].trim().trim_start_matches("* ");
            tidied.push_str(&format!("{line} {words} */"));
            at += 2;
        } else {
            tidied.push_str(&line);
        }
        tidied.push('\n');
        at += 1;
    }
    tidied
}

#[test]
fn header_is_what_the_functions_say() {
    let path = folder().join("include/drystone.h");
    if std::env::var_os(BLESS).is_some() {
        fs::write(&path, generated()).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap();
    let is_same = committed == generated();
    assert!(is_same, "the header is stale: run with {BLESS}=1 and commit {}", path.display());
}

/// Compiles a program that uses nothing but the header.
fn compiles(compiler: &str, flags: &[&str], extension: &str) {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("program").with_extension(extension);
    let text = "#include <drystone.h>\n\
                #include <drystone.h>\n\
                int main(void) { return drystone_version_number() != DRYSTONE_VERSION; }\n";
    fs::write(&source, text).unwrap();
    let object = folder.path().join("program.o");
    let strict = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-c", "-o"];
    let mut command = Command::new(compiler);
    command.args(flags).args(strict).arg(&object).arg(&source);
    command.arg("-I").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn header_compiles_as_c99() {
    compiles("cc", &["-std=c99"], "c");
}

#[test]
fn header_compiles_as_cpp() {
    compiles("c++", &["-std=c++11"], "cpp");
}
