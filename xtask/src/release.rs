//! All that a version is, made and tried in one folder: `cargo xtask release`.
//!
//! Lives here: the order. Nothing is uploaded, tagged or signed: that takes keys, and the end says
//! which commands a person gives. Invariant: what is made comes from one commit, and what is
//! installed is tried outside of the checkout.

use std::env::consts::ARCH;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;

use crate::command::{cmd, copy, install, made_folder, root, sh, target};
use crate::parts::{self, Part, Skipped};
use crate::toolchain::with_tools;
use crate::wheel::{self, SimWheelArgs, WheelArgs};
use crate::{capi, notices, package, python};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The crates whose libraries and programs are shipped as such.
const SHIPPED: [&str; 5] = [
    "drystone-library",
    "drystone-preload",
    "drystone-cli",
    "drystone-simcuda",
    "drystone-simcudart",
];

const PARTS: [Part; 10] = [
    ("versions agree, the changelog has this one", versions),
    ("licences of dependencies", licences),
    ("public interface against the last tag", semver),
    ("crates, in order, as they would be published", package::publish_dry_run),
    ("source archive", source_archive),
    ("bills of materials", bills_of_materials),
    ("C library", c_library),
    ("wheel of the allocator, its source archive", allocator_wheel),
    ("wheel of the simulated device", sim_wheel),
    ("wheels outside of the checkout", try_wheels),
];

/// Makes it all. A dry run takes a changelog without a date, and a checkout with changes.
pub fn release(is_dry: bool) -> Result<()> {
    sh().remove_path(folder()?)?;
    let lacking = lacking()?;
    lacking.iter().for_each(|what| eprintln!("not ready: {what}"));
    ensure!(is_dry || lacking.is_empty(), "this is no release yet: {}", lacking.join("; "));
    parts::run(&PARTS)?;
    let (folder, script) = (folder()?, "sha256sum -- *[!S] > SHA256SUMS && cat SHA256SUMS");
    cmd!("env --chdir={folder} sh -c {script}").run()?;
    println!("{}", what_is_left(&lacking)?);
    Ok(())
}

fn folder() -> Result<PathBuf> {
    made_folder(target().join("release-of").join(VERSION))
}

/// What keeps this commit from being the release.
fn lacking() -> Result<Vec<String>> {
    let mut lacking = Vec::new();
    if !cmd!("git status --porcelain").read()?.is_empty() {
        lacking.push("the checkout has changes that no commit has".to_owned());
    }
    if !cmd!("git tag --list v{VERSION}").read()?.is_empty() {
        lacking.push(format!("the tag v{VERSION} is there already"));
    }
    if !sh().read_file("CHANGELOG.md")?.contains(&format!("\n## {VERSION} (")) {
        lacking.push(format!("CHANGELOG.md has no heading `## {VERSION} (DATE)`"));
    }
    Ok(lacking)
}

/// The changelog's text of a version, below its heading.
fn notes(changelog: &str, version: &str) -> Option<String> {
    let mut sections = changelog.split("\n## ").skip(1).filter_map(|one| one.split_once('\n'));
    let (_, text) =
        sections.find(|(heading, _)| heading.split([' ', ':']).any(|word| word == version))?;
    Some(text.trim().to_owned() + "\n")
}

fn versions() -> Result<()> {
    let (tests, paths) = (root().join("python/tests"), python::test_paths()?);
    cmd!("env --chdir={tests} PYTHONPATH={paths} python3 -B -m unittest test_wheel.Version")
        .run()?;
    let notes = notes(&sh().read_file("CHANGELOG.md")?, VERSION);
    let notes = notes.with_context(|| format!("CHANGELOG.md does not speak of {VERSION}"))?;
    Ok(sh().write_file(folder()?.join("NOTES.md"), notes)?)
}

/// What dependencies may be, by `deny.toml`.
pub fn licences() -> Result<()> {
    install("deny")?;
    Ok(cmd!("cargo deny check licenses bans sources").run()?)
}

/// Against the last version that was tagged; before the first there is nothing to break.
fn semver() -> Result<()> {
    let tags = cmd!("git tag --list v* --merged HEAD --sort=-v:refname").read()?;
    let Some(last) = tags.lines().find(|tag| *tag != format!("v{VERSION}")) else {
        bail!(Skipped("no version is tagged before this one".to_owned()));
    };
    install("semver-checks")?;
    let crates = package::published()?.into_iter().flat_map(|(name, _)| ["--package".into(), name]);
    Ok(cmd!("cargo semver-checks --baseline-rev {last} {crates...}").run()?)
}

fn source_archive() -> Result<()> {
    let name = format!("drystone-{VERSION}");
    let archive = folder()?.join(format!("repository-{name}.tar.gz"));
    cmd!("git archive --format tar.gz --prefix {name}/ --output {archive} HEAD").run()?;
    // It is a whole: cargo reads every manifest and the lock from it alone.
    let unpacked = sh().create_temp_dir()?;
    let to = unpacked.path();
    cmd!("tar -xzf {archive} -C {to}").run()?;
    let read = cmd!("env --chdir={to}/{name} cargo metadata --locked --format-version 1");
    Ok(read.ignore_stdout().run()?)
}

fn c_library() -> Result<()> {
    let name = format!("libdrystone-{VERSION}-{ARCH}-linux");
    let folders = target().join("release-of/c");
    let built = capi::build(Some(folders.join(&name)))?;
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        copy(&root().join(licence), &built.join(licence))?;
    }
    notices::write(&built, &["drystone-library", "drystone-preload"])?;
    let archive = folder()?.join(format!("{name}.tar.gz"));
    Ok(cmd!("tar -czf {archive} -C {folders} {name}").run()?)
}

fn allocator_wheel() -> Result<()> {
    wheel::wheel(&WheelArgs { out: Some(folder()?), ..WheelArgs::parse_from([""]) }).map(drop)
}

fn sim_wheel() -> Result<()> {
    wheel::sim_wheel(&SimWheelArgs { out: Some(folder()?), ..SimWheelArgs::parse_from([""]) })
        .map(drop)
}

/// As a user has them: installed with no index, no compiler and no checkout at hand; and with
/// PyTorch, by the tests of the wheel.
fn try_wheels() -> Result<()> {
    let folder = folder()?;
    let elsewhere = sh().create_temp_dir()?;
    let (there, script) = (elsewhere.path(), root().join("packaging/try.sh"));
    cmd!("env --chdir={there} sh {script} {folder}").run()?;
    let uploads = uploads()?;
    let wheel = uploads.iter().find(|file| is_named(file, &format!("drystone-{VERSION}-")));
    let wheel = wheel.with_context(|| format!("{} has no wheel", folder.display()))?;
    with_tools(cmd!("twine check --strict").args(&uploads))?.run()?;
    python::test_wheel(wheel)
}

/// What goes to the package index.
fn uploads() -> Result<Vec<PathBuf>> {
    let mut files = sh().read_dir(folder()?)?;
    let archive = format!("drystone-{VERSION}.tar.gz");
    files.retain(|file| file.extension().is_some_and(|e| e == "whl") || is_named(file, &archive));
    Ok(files)
}

fn is_named(file: &Path, beginning: &str) -> bool {
    file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(beginning))
}

/// In the form of CycloneDX, by the tool of its makers, which writes beside each manifest.
fn bills_of_materials() -> Result<()> {
    install("cyclonedx")?;
    let beside = "release-bill-of-materials";
    cmd!(
        "cargo cyclonedx --override-filename {beside}
        --format json --spec-version 1.5 --no-build-deps"
    )
    .run()?;
    let metadata = package::metadata("--no-deps")?;
    for member in package::list(&metadata, "packages")? {
        let manifest = member["manifest_path"].as_str().context("a package has a manifest")?;
        let file = Path::new(manifest).with_file_name(format!("{beside}.json"));
        if let Some(name) = SHIPPED.iter().find(|name| member["name"] == **name) {
            sh().copy_file(&file, folder()?.join(format!("{name}-{VERSION}.cdx.json")))?;
        }
        sh().remove_path(file)?;
    }
    Ok(())
}

/// What takes keys, in its order.
fn what_is_left(lacking: &[String]) -> Result<String> {
    let (folder, target) = (folder()?, target());
    let (here, target) = (folder.display(), target.display());
    let commit = cmd!("git rev-parse HEAD").read()?;
    let crates = package::published()?.into_iter().map(|(name, _)| format!("--package {name}"));
    let crates: Vec<String> = crates.collect();
    let crates = crates.join(" ");
    let before: String = lacking.iter().map(|it| format!("Before the release: {it}.\n")).collect();
    Ok(format!(
        "
Drystone {VERSION} of commit {commit} is in {here}
{before}
What is left takes keys of your own, in this order:
1. The tag, signed by you:
     git tag --sign v{VERSION} {commit} --file {here}/NOTES.md
     git push origin v{VERSION}
2. Wheels for aarch64, from the job `ship` that the tag started: put them into {here}.
3. Crates, after `cargo login`; no version comes back once it is there:
     cargo publish {crates}
4. Wheels and source archive, with a token of the package index:
     {target}/wheel-venv/bin/twine upload {here}/*.whl {here}/drystone-{VERSION}.tar.gz
5. The page of the release, with all other files and SHA256SUMS:
     gh release create v{VERSION} --notes-file {here}/NOTES.md {here}/*
6. packaging/conda/recipe.yaml, with the checksum of drystone-{VERSION}.tar.gz, to conda-forge.
"
    ))
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
