//! Which module files of a crate use which, as their text says it.
//!
//! A use is a `use` or a path in code that leads to a name; it counts for the file that defines the
//! name, through any number of re-exports. Declaring a module is no use, and neither is
//! re-exporting a name that the file itself makes no use of. Invariant: what is compiled for tests
//! alone is not seen.

use std::collections::{BTreeMap, BTreeSet};

use syn::UseTree;

use super::tokens::tokens;

/// A module by its path from the crate's root, which is empty.
type Path = Vec<String>;
/// How often a name may lead on to another before the search for its file is given up.
const HOPS_MAX: u32 = 16;

#[derive(Default)]
struct Module {
    file: String,
    imports: Vec<Import>,
    /// Paths in code, outside of `use`.
    paths: BTreeSet<Path>,
    /// All words of code, outside of public `use`.
    words: BTreeSet<String>,
    defines: BTreeSet<String>,
    children: Vec<String>,
}

struct Import {
    path: Path,
    /// What the file calls it; `*` for all that is there.
    name: String,
    is_public: bool,
}

/// For each file of the crate that begins with the file `root`, the files it uses.
pub fn uses(files: &BTreeMap<String, String>, root: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut modules = BTreeMap::new();
    let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
    add(files, folder, root, Vec::new(), &mut modules);
    let uses_of = |(path, module): (&Path, &Module)| {
        let own = |file: &&String| **file != module.file;
        let used = targets(&modules, path, module).filter_map(|at| modules.get(&at));
        let used = used.map(|other| &other.file).filter(own).cloned().collect();
        (module.file.clone(), used)
    };
    modules.iter().map(uses_of).collect()
}

/// Adds a file, and the files of the modules that it declares.
fn add(
    files: &BTreeMap<String, String>,
    folder: &str,
    file: &str,
    path: Path,
    modules: &mut BTreeMap<Path, Module>,
) {
    let Some(text) = files.get(file) else { return };
    let tokens = tokens(text);
    let module = read(file, &tokens.iter().map(String::as_str).collect::<Vec<_>>());
    for child in &module.children {
        let inner = path.iter().chain([child]).cloned().collect::<Path>();
        let stem = format!("{folder}/{}", inner.join("/"));
        for file in [format!("{stem}.rs"), format!("{stem}/mod.rs")] {
            add(files, folder, &file, inner.clone(), modules);
        }
    }
    modules.insert(path, module);
}

fn read(file: &str, tokens: &[&str]) -> Module {
    let mut module = Module { file: file.to_owned(), ..Module::default() };
    let is_word = |token: &str| token.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let mut at = 0;
    while let Some(&token) = tokens.get(at) {
        let before = at.checked_sub(1).map_or("", |before| tokens[before]);
        let next = tokens.get(at + 1).copied().unwrap_or_default();
        match token {
            "use" if next != "<" => {
                let end = tokens[at..].iter().position(|token| *token == ";").unwrap();
                let tree = tokens[at + 1..at + end].join(" ");
                let is_public = matches!(before, "pub" | ")");
                let mut found = Vec::new();
                imports(
                    &syn::parse_str(tree.trim_start_matches("::")).unwrap(),
                    Path::new(),
                    is_public,
                    &mut found,
                );
                let private = found.iter().filter(|import| !import.is_public);
                module.words.extend(private.map(|import| import.name.clone()));
                module.imports.extend(found);
                at += end;
            }
            "mod" if tokens.get(at + 2) == Some(&";") => module.children.push(next.to_owned()),
            "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" | "!" => {
                let name = if next == "mut" { tokens[at + 2] } else { next };
                module.defines.insert(name.to_owned());
            }
            _ if is_word(token) && before != "::" && before != "." => {
                let mut path = vec![token.to_owned()];
                while tokens.get(at + 1) == Some(&"::")
                    && tokens.get(at + 2).is_some_and(|name| is_word(name))
                {
                    path.push(tokens[at + 2].to_owned());
                    at += 2;
                }
                module.words.insert(path[0].clone());
                module.paths.insert(path);
            }
            _ => {}
        }
        at += 1;
    }
    module
}

/// Reads a tree of a `use`, below a path.
fn imports(tree: &UseTree, mut path: Path, is_public: bool, found: &mut Vec<Import>) {
    let (name, new_name) = match tree {
        UseTree::Path(below) => {
            path.push(below.ident.to_string());
            return imports(&below.tree, path, is_public, found);
        }
        UseTree::Group(group) => {
            let trees = group.items.iter();
            return trees.for_each(|tree| imports(tree, path.clone(), is_public, found));
        }
        UseTree::Glob(_) => ("*".to_owned(), None),
        UseTree::Name(one) => (one.ident.to_string(), None),
        UseTree::Rename(one) => (one.ident.to_string(), Some(one.rename.to_string())),
    };
    if name != "self" {
        path.push(name);
    }
    let name = new_name.or_else(|| path.last().cloned()).unwrap_or_default();
    found.push(Import { path, name, is_public });
}

/// The modules whose names a module uses.
fn targets<'a>(
    modules: &'a BTreeMap<Path, Module>,
    at: &'a Path,
    module: &'a Module,
) -> impl Iterator<Item = Path> + 'a {
    let has_children = |path: &Path| modules.get(path).is_some_and(|one| !one.children.is_empty());
    let is_used = |one: &&Import| !one.is_public || module.words.contains(&one.name);
    let imported = module.imports.iter().filter(is_used).filter_map(move |one| {
        let (target, is_module) = resolve(modules, at, &one.path, HOPS_MAX)?;
        // Paths in code that begin with the name say what is used of a module and its children.
        (one.name == "*" || !is_module || !has_children(&target)).then_some(target)
    });
    let longer = module.paths.iter().filter(|path| path.len() > 1);
    let mentioned = longer.filter_map(|path| Some(resolve(modules, at, path, HOPS_MAX)?.0));
    imported.chain(mentioned)
}

/// The module that a path in the module `from` leads to, or the one that defines the name it leads
/// to; and whether it is the module itself. `None` for what is not of this crate.
fn resolve(
    modules: &BTreeMap<Path, Module>,
    from: &Path,
    path: &[String],
    hops: u32,
) -> Option<(Path, bool)> {
    let (first, mut rest) = path.split_first()?;
    let mut at = match first.as_str() {
        "crate" => Vec::new(),
        "self" => from.clone(),
        "super" => from[..from.len().checked_sub(1)?].to_vec(),
        name => {
            let child = from.iter().cloned().chain([name.to_owned()]).collect();
            if modules.contains_key(&child) {
                child
            } else {
                let import = modules.get(from)?.imports.iter().find(|one| one.name == *name)?;
                let (target, is_module) =
                    resolve(modules, from, &import.path, hops.checked_sub(1)?)?;
                if !is_module {
                    return Some((target, false));
                }
                target
            }
        }
    };
    while let Some((name, later)) = rest.split_first() {
        let child: Path = at.iter().chain([name]).cloned().collect();
        match name.as_str() {
            "super" => drop(at.pop()),
            "*" => return Some((at, true)),
            _ if modules.contains_key(&child) => at = child,
            _ => return Some((definer(modules, &at, name, hops.checked_sub(1)?)?, false)),
        }
        rest = later;
    }
    Some((at, true))
}

/// The module that defines what a module knows by a name.
fn definer(modules: &BTreeMap<Path, Module>, at: &Path, name: &str, hops: u32) -> Option<Path> {
    let module = modules.get(at)?;
    if module.defines.contains(name) {
        return Some(at.clone());
    }
    if let Some(import) = module.imports.iter().find(|one| one.name == name && one.path.len() > 1) {
        return Some(resolve(modules, at, &import.path, hops)?.0);
    }
    let all = module.imports.iter().filter(|one| one.name == "*");
    let mut found = all.filter_map(|one| {
        let (target, _) = resolve(modules, at, &one.path, hops.checked_sub(1)?)?;
        let place = definer(modules, &target, name, hops.checked_sub(1)?)?;
        modules.get(&place)?.defines.contains(name).then_some(place)
    });
    Some(found.next().unwrap_or_else(|| at.clone()))
}
