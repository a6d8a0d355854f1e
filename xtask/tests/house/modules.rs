//! Which module files of a crate use which, as their text says it.
//!
//! A use is a `use` or a path in code that leads to a name; it counts for the file that defines the
//! name, through any number of re-exports. Declaring a module is no use, and neither is
//! re-exporting a name that the file itself makes no use of. Invariant: what is compiled for tests
//! alone is not seen.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::UseTree;

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
    children: BTreeSet<String>,
}

struct Import {
    path: Path,
    /// What the file calls it; `*` for all that is there.
    name: String,
    is_public: bool,
}

/// For each file of the crate that begins with the file `root`, the files it uses.
pub fn uses(files: &BTreeMap<String, String>, root: &str) -> BTreeMap<String, BTreeSet<String>> {
    let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut modules = Modules(BTreeMap::new());
    let mut open = vec![(Path::new(), root.to_owned())];
    while let Some((path, file)) = open.pop() {
        let Some(text) = files.get(&file) else { continue };
        let tokens = tokens(text);
        let module = read(file, &tokens.iter().map(String::as_str).collect::<Vec<_>>());
        for child in &module.children {
            let inner: Path = path.iter().chain([child]).cloned().collect();
            let stem = format!("{folder}/{}", inner.join("/"));
            let files = [format!("{stem}.rs"), format!("{stem}/mod.rs")];
            open.extend(files.map(|file| (inner.clone(), file)));
        }
        modules.0.insert(path, module);
    }
    let uses_of = |(path, module): (&Path, &Module)| {
        let used = modules.used_by(path, module).filter_map(|at| modules.0.get(&at));
        let used = used.map(|other| other.file.clone()).filter(|file| *file != module.file);
        (module.file.clone(), used.collect())
    };
    modules.0.iter().map(uses_of).collect()
}

fn read(file: String, tokens: &[&str]) -> Module {
    let mut module = Module { file, ..Module::default() };
    let is_word = |token: &str| token.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let mut at = 0;
    while let [token, rest @ ..] = &tokens[at..] {
        let before = at.checked_sub(1).map_or("", |before| tokens[before]);
        match (*token, rest) {
            ("use", [next, ..]) if *next != "<" => {
                let end = rest.iter().position(|token| *token == ";").unwrap();
                let tree = rest[..end].join(" ");
                let tree = syn::parse_str(tree.trim_start_matches("::")).unwrap();
                let is_public = matches!(before, "pub" | ")");
                imports(&tree, Path::new(), is_public, &mut module.imports);
                at += end;
            }
            ("mod", [name, ";", ..]) => drop(module.children.insert((*name).to_owned())),
            (
                "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" | "!",
                ["mut", name, ..] | [name, ..],
            ) => drop(module.defines.insert((*name).to_owned())),
            _ if is_word(token) && before != "::" && before != "." => {
                let mut path = vec![(*token).to_owned()];
                while let ["::", name, ..] = &tokens[at + 1..]
                    && is_word(name)
                {
                    path.push((*name).to_owned());
                    at += 2;
                }
                module.words.insert(path[0].clone());
                module.paths.insert(path);
            }
            _ => {}
        }
        at += 1;
    }
    let private = module.imports.iter().filter(|import| !import.is_public);
    module.words.extend(private.map(|import| import.name.clone()));
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

struct Modules(BTreeMap<Path, Module>);

impl Modules {
    /// The modules whose names a module uses.
    fn used_by(&self, at: &Path, module: &Module) -> impl Iterator<Item = Path> {
        let is_used = |one: &&Import| !one.is_public || module.words.contains(&one.name);
        let imported = module.imports.iter().filter(is_used).filter_map(move |one| {
            let (target, is_module) = self.resolve(at, &one.path, HOPS_MAX)?;
            // Paths in code that begin with the name say what is used of a module and its children.
            let is_leaf = || self.0[&target].children.is_empty();
            (one.name == "*" || !is_module || is_leaf()).then_some(target)
        });
        let longer = module.paths.iter().filter(|path| path.len() > 1);
        imported.chain(longer.filter_map(|path| Some(self.resolve(at, path, HOPS_MAX)?.0)))
    }

    /// The module that a path in the module `from` leads to, or the one that defines the name it
    /// leads to; and whether it is the module itself. `None` for what is not of this crate.
    fn resolve(&self, from: &Path, path: &[String], hops: u32) -> Option<(Path, bool)> {
        let hops = hops.checked_sub(1)?;
        let mut at = from.clone();
        for (index, name) in path.iter().enumerate() {
            let module = self.0.get(&at)?;
            match name.as_str() {
                "crate" => at.clear(),
                "self" | "*" => {}
                "super" => drop(at.pop()?),
                _ if module.children.contains(name) => at.push(name.clone()),
                _ if module.defines.contains(name) => return Some((at, false)),
                _ => match self.imported(&at, module, name, hops) {
                    Some((target, true)) => at = target,
                    Some(found) => return Some(found),
                    // A method, or the name of another crate.
                    None => return (index > 0).then_some((at, false)),
                },
            }
        }
        Some((at, true))
    }

    /// What a module knows by a name that it does not define.
    fn imported(&self, at: &Path, module: &Module, name: &str, hops: u32) -> Option<(Path, bool)> {
        if let Some(import) = module.imports.iter().find(|one| one.name == name) {
            return self.resolve(at, &import.path, hops);
        }
        module.imports.iter().filter(|one| one.name == "*").find_map(|one| {
            let (target, _) = self.resolve(at, &one.path, hops)?;
            let found = self.resolve(&target, &[name.to_owned()], hops)?;
            self.0.get(&found.0)?.defines.contains(name).then_some(found)
        })
    }
}

/// The tokens of a text: words, `::`, single characters, and a quote for each literal; without what
/// is compiled for tests alone.
fn tokens(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    add(text.parse().unwrap(), &mut found);
    found
}

fn add(stream: TokenStream, found: &mut Vec<String>) {
    let mut trees = stream.into_iter().peekable();
    while let Some(tree) = trees.next() {
        match (tree, trees.peek()) {
            (TokenTree::Punct(mark), Some(TokenTree::Group(attribute)))
                if mark.as_char() == '#'
                    && attribute.to_string().replace(' ', "") == "[cfg(test)]" =>
            {
                // The item ends with its body, or with its `;`.
                trees.find(|tree| match tree {
                    TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                    TokenTree::Punct(mark) => mark.as_char() == ';',
                    _ => false,
                });
            }
            (TokenTree::Group(group), _) => {
                let is_body = group.delimiter() == Delimiter::Brace;
                found.push(if is_body { "{" } else { "(" }.to_owned());
                add(group.stream(), found);
                found.push(if is_body { "}" } else { ")" }.to_owned());
            }
            (TokenTree::Punct(mark), Some(TokenTree::Punct(next)))
                if (mark.as_char(), next.as_char()) == (':', ':') =>
            {
                trees.next();
                found.push("::".to_owned());
            }
            // It begins the name of a lifetime.
            (TokenTree::Punct(mark), _) if mark.as_char() == '\'' => {}
            (TokenTree::Literal(_), _) => found.push("\"".to_owned()),
            (other, _) => found.push(other.to_string()),
        }
    }
}
