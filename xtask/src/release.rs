//! All that a version is, made and tried in one folder: `cargo xtask release`.
//!
//! Lives here: the order. Nothing is uploaded, tagged or signed: that takes keys, and the end says
//! which commands a person gives. Invariant: what is made comes from one commit, and what is
//! installed is tried outside of the checkout.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::command::{self, cargo, install, root, run, target};
use crate::files::{copy, made_folder};
use crate::parts::{self, Outcome, Part};
use crate::wheel::{self, ShimArgs, WheelArgs};
use crate::wheel_tools::{tools, with};
use crate::{capi, notices, package, python, sim_wheel};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The crates whose libraries and programs are shipped as such.
const SHIPPED: &str = "drystone-library drystone-preload drystone-cli drystone-simcuda \
    drystone-simcudart";

const PARTS: [Part; 10] = [
    ("versions agree, the changelog has this one", versions),
    ("licences of dependencies", licences),
    ("public interface against the last tag", semver),
    ("crates, in order, as they would be published", || done(package::publish_dry_run)),
    ("source archive", source_archive),
    ("bills of materials", bills_of_materials),
    ("C library", c_library),
    ("wheel of the allocator, its source archive", allocator_wheel),
    ("wheel of the simulated device", || done(|| sim_wheel::released(folder()?))),
    ("wheels outside of the checkout", try_wheels),
];

fn done(part: impl FnOnce() -> Result<()>) -> Result<Outcome> {
    part().map(|()| Outcome::Passed)
}

/// Makes it all. A dry run takes a changelog without a date, and a checkout with changes.
pub fn release(is_dry: bool) -> Result<()> {
    let _ = fs::remove_dir_all(target().join("release-of").join(VERSION));
    let lacking = lacking()?;
    lacking.iter().for_each(|what| eprintln!("not ready: {what}"));
    ensure!(is_dry || lacking.is_empty(), "this is no release yet: {}", lacking.join("; "));
    parts::run(&PARTS)?;
    checksums()?;
    println!("{}", what_is_left(&lacking)?);
    Ok(())
}

/// Where it all goes.
fn folder() -> Result<PathBuf> {
    made_folder(target().join("release-of").join(VERSION))
}

/// What a program prints.
fn said(program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command::said(command)?.trim().to_owned())
}

/// What keeps this commit from being the release.
fn lacking() -> Result<Vec<String>> {
    let mut lacking = Vec::new();
    if !said("git", &["status", "--porcelain"])?.is_empty() {
        lacking.push("the checkout has changes that no commit has".to_owned());
    }
    if !said("git", &["tag", "--list", &format!("v{VERSION}")])?.is_empty() {
        lacking.push(format!("the tag v{VERSION} is there already"));
    }
    let changelog = fs::read_to_string(root().join("CHANGELOG.md"))?;
    if !changelog.contains(&format!("\n## {VERSION} (")) {
        lacking.push(format!("CHANGELOG.md has no heading `## {VERSION} (DATE)`"));
    }
    Ok(lacking)
}

/// The changelog's text of a version, below its heading.
fn notes(changelog: &str, version: &str) -> Option<String> {
    let sections = changelog.split("\n## ").skip(1);
    let mut of_version = sections.filter_map(|section| section.split_once('\n'));
    let is_it = |heading: &str| {
        let mut words = heading.split([' ', ':']);
        words.any(|word| word == version)
    };
    let (_, text) = of_version.find(|(heading, _)| is_it(heading))?;
    Some(text.trim().to_owned() + "\n")
}

fn versions() -> Result<Outcome> {
    let mut test = Command::new("python3");
    test.args(["-B", "-m", "unittest", "test_wheel.Version"]);
    test.current_dir(root().join("python/tests")).env("PYTHONPATH", python::test_paths()?);
    run(test)?;
    let changelog = fs::read_to_string(root().join("CHANGELOG.md"))?;
    let notes = notes(&changelog, VERSION);
    let notes = notes.with_context(|| format!("CHANGELOG.md does not speak of {VERSION}"))?;
    fs::write(folder()?.join("NOTES.md"), notes)?;
    Ok(Outcome::Passed)
}

fn licences() -> Result<Outcome> {
    install("deny")?;
    done(|| cargo(&["deny", "check", "licenses", "bans", "sources"]))
}

/// Against the last version that was tagged; before the first there is nothing to break.
fn semver() -> Result<Outcome> {
    let tags = said("git", &["tag", "--list", "v*", "--merged", "HEAD", "--sort=-v:refname"])?;
    let Some(last) = tags.lines().find(|tag| *tag != format!("v{VERSION}")) else {
        return Ok(Outcome::Skipped("no version is tagged before this one".to_owned()));
    };
    install("semver-checks")?;
    let mut check = Command::new("cargo");
    check.args(["semver-checks", "--baseline-rev", last]);
    for (name, _) in package::published()? {
        check.args(["--package", &name]);
    }
    done(|| run(check))
}

fn source_archive() -> Result<Outcome> {
    let name = format!("drystone-{VERSION}");
    let archive = folder()?.join(format!("repository-{name}.tar.gz"));
    let mut pack = Command::new("git");
    pack.args(["archive", "--format", "tar.gz", "--prefix", &format!("{name}/"), "--output"]);
    pack.arg(&archive).arg("HEAD");
    run(pack)?;
    // It is a whole: cargo reads every manifest and the lock from it alone.
    let unpacked = tempfile::tempdir()?;
    let mut unpack = Command::new("tar");
    unpack.arg("-xzf").arg(&archive).arg("-C").arg(unpacked.path());
    run(unpack)?;
    let mut read = Command::new("cargo");
    read.args(["metadata", "--locked", "--format-version", "1"]).stdout(Stdio::null());
    read.current_dir(unpacked.path().join(name));
    done(|| run(read))
}

fn c_library() -> Result<Outcome> {
    let name = format!("libdrystone-{VERSION}-{}-linux", std::env::consts::ARCH);
    let built = capi::build(Some(target().join("release-of/c").join(&name)))?;
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        copy(&root().join(licence), &built.join(licence))?;
    }
    fs::write(
        built.join(notices::NAME),
        notices::text(&["drystone-library", "drystone-preload"])?,
    )?;
    let mut pack = Command::new("tar");
    pack.arg("-czf").arg(folder()?.join(format!("{name}.tar.gz")));
    pack.arg("-C").arg(built.parent().context("it is in a folder")?).arg(&name);
    done(|| run(pack))
}

fn allocator_wheel() -> Result<Outcome> {
    wheel::wheel(&WheelArgs { out: Some(folder()?), shims: ShimArgs::default() })?;
    Ok(Outcome::Passed)
}

/// As a user has them: installed with no index, no compiler and no checkout at hand; and with
/// PyTorch, by the tests of the wheel.
fn try_wheels() -> Result<Outcome> {
    let folder = folder()?;
    let elsewhere = tempfile::tempdir()?;
    let mut try_it = Command::new("sh");
    try_it.arg(root().join("packaging/try.sh").canonicalize()?).arg(&folder);
    try_it.current_dir(elsewhere.path());
    run(try_it)?;
    let tools = tools()?;
    let mut check = with(&tools, tools.join("twine"))?;
    check.args(["check", "--strict"]).args(uploads()?);
    run(check)?;
    python::test_wheel(&wheel_in(&folder)?)
}

/// What goes to the package index.
fn uploads() -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder()?)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".whl") || name == format!("drystone-{VERSION}.tar.gz") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn wheel_in(folder: &Path) -> Result<PathBuf> {
    let name = format!("drystone-{VERSION}-");
    let found = uploads()?.into_iter().find(|path| {
        path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&name))
    });
    found.with_context(|| format!("{} has no wheel", folder.display()))
}

/// In the form of CycloneDX, by the tool of its makers, which writes beside each manifest.
fn bills_of_materials() -> Result<Outcome> {
    install("cyclonedx")?;
    let metadata = package::metadata(&["--no-deps"])?;
    let members = metadata["packages"].as_array().context("cargo names no packages")?;
    let beside = "release-bill-of-materials";
    let form = ["--format", "json", "--spec-version", "1.5", "--no-build-deps"];
    cargo(&[&["cyclonedx", "--override-filename", beside], &form[..]].concat())?;
    for member in members {
        let manifest = member["manifest_path"].as_str().context("a package has a manifest")?;
        let file = Path::new(manifest).with_file_name(format!("{beside}.json"));
        if let Some(name) = SHIPPED.split(' ').find(|name| member["name"] == *name) {
            fs::copy(&file, folder()?.join(format!("{name}-{VERSION}.cdx.json")))
                .with_context(|| format!("find the bill of {name}"))?;
        }
        let _ = fs::remove_file(file);
    }
    Ok(Outcome::Passed)
}

fn checksums() -> Result<()> {
    let mut sum = Command::new("sh");
    sum.args(["-c", "sha256sum -- *[!S] > SHA256SUMS && cat SHA256SUMS"]);
    sum.current_dir(folder()?);
    run(sum)
}

/// What takes keys, in its order.
fn what_is_left(lacking: &[String]) -> Result<String> {
    let folder = folder()?;
    let here = folder.display();
    let commit = said("git", &["rev-parse", "HEAD"])?;
    let crates: Vec<String> =
        package::published()?.into_iter().map(|(name, _)| format!("--package {name}")).collect();
    let mut text = format!("\nDrystone {VERSION} of commit {commit} is in {here}\n");
    for what in lacking {
        text += &format!("Before the release: {what}.\n");
    }
    text += &format!(
        "\nWhat is left takes keys of your own, in this order:\n\
         1. The tag, signed by you:\n     \
            git tag --sign v{VERSION} {commit} --file {here}/NOTES.md\n     \
            git push origin v{VERSION}\n\
         2. Wheels for aarch64, from the job `ship` that the tag started: put them into {here}.\n\
         3. Crates, after `cargo login`; no version comes back once it is there:\n     \
            cargo publish {}\n\
         4. Wheels and source archive, with a token of the package index:\n     \
            {}/wheel-venv/bin/twine upload {here}/*.whl {here}/drystone-{VERSION}.tar.gz\n\
         5. The page of the release, with all other files and SHA256SUMS:\n     \
            gh release create v{VERSION} --notes-file {here}/NOTES.md {here}/*\n\
         6. packaging/conda/recipe.yaml, with the checksum of drystone-{VERSION}.tar.gz, to \
         conda-forge.\n",
        crates.join(" "),
        target().display()
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::notes;

    #[test]
    fn the_notes_are_the_text_of_the_version() {
        let text = "# Changelog\n\n## Unreleased: 0.2.0\n\n- New.\n\n## 0.1.0 (2026)\n\n- Old.\n";
        assert_eq!(notes(text, "0.2.0").as_deref(), Some("- New.\n"));
        assert_eq!(notes(text, "0.1.0").as_deref(), Some("- Old.\n"));
        assert_eq!(notes(text, "0.3.0"), None);
    }
}
