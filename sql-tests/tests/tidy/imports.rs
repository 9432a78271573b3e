//! Which top-level module of a crate imports which: no circle.
//!
//! An import is a path that begins with `crate::`, or that leads out of its module by `super::`, in a `use`, in the code or
//! in a macro's arguments; tests are left out. What is imported through a re-export of the crate's root counts as
//! imported from where it lives.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;

use super::tree::{is_test, packages, relative, sources};

/// Module to the modules that it imports, each with a place where it does.
type Graph = BTreeMap<String, BTreeMap<String, String>>;

/// What is defined in `lib.rs` itself, as a node of the graph.
const ROOT: &str = "lib.rs";

#[test]
fn modules_import_in_one_direction() {
    let mut faults = Vec::new();
    for package in packages() {
        for circle in circles(&graph(&format!("{}/src", package.folder))) {
            faults.push(format!("{}:\n{circle}", package.folder));
        }
    }
    assert!(faults.is_empty(), "import circles\n{}", faults.join("\n"));
}

#[test]
fn a_circle_is_found() {
    let graph = Graph::from([
        (
            "a".to_string(),
            BTreeMap::from([("b".to_string(), "a.rs: b".to_string())]),
        ),
        (
            "b".to_string(),
            BTreeMap::from([("c".to_string(), "b.rs: c".to_string())]),
        ),
        (
            "c".to_string(),
            BTreeMap::from([("a".to_string(), "c.rs: a".to_string())]),
        ),
        (
            "d".to_string(),
            BTreeMap::from([("a".to_string(), "d.rs: a".to_string())]),
        ),
    ]);
    assert_eq!(
        circles(&graph),
        ["  a -> b (a.rs: b)\n  b -> c (b.rs: c)\n  c -> a (c.rs: a)"]
    );
}

/// The graph of the top-level modules below a crate's `src`.
fn graph(source: &str) -> Graph {
    let files: Vec<(PathBuf, Vec<String>)> = sources(source)
        .into_iter()
        .filter(|path| !is_test(path))
        .map(|path| {
            let module = module_of(&path, source);
            (path, module)
        })
        .collect();
    let modules: BTreeSet<String> = files
        .iter()
        .filter_map(|(_, module)| module.first().cloned())
        .collect();
    let parsed: Vec<(&Path, &[String], syn::File)> = files
        .iter()
        .map(|(path, module)| {
            let text = fs::read_to_string(path).expect("a source file can be read");
            let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", relative(path)));
            (path.as_path(), module.as_slice(), file)
        })
        .collect();

    let mut reexported = BTreeMap::new();
    for (_, _, file) in parsed.iter().filter(|(_, module, _)| module.is_empty()) {
        for item in file.items.iter().filter_map(reexport) {
            for path in flattened(&item.tree) {
                let path: Vec<String> = path
                    .into_iter()
                    .filter(|part| part != "crate" && part != "self")
                    .collect();
                if let (Some(first), Some(last)) = (path.first(), path.last()) {
                    reexported.insert(last.clone(), first.clone());
                }
            }
        }
    }

    let mut graph = Graph::new();
    for (path, module, file) in &parsed {
        let mut imports = Imports {
            module,
            found: Vec::new(),
        };
        for item in &file.items {
            // What the root declares and re-exports is its list; what its own code uses is an import.
            if !(module.is_empty() && reexport(item).is_some()) {
                imports.visit_item(item);
            }
        }
        let from = module.first().map_or(ROOT, String::as_str);
        for target in imports.found {
            let Some(first) = target.first() else { continue };
            let to = if modules.contains(first) {
                first.as_str()
            } else if from == ROOT {
                // A path that begins with the name of another crate, or of something in the root itself.
                continue;
            } else {
                reexported.get(first).map_or(ROOT, String::as_str)
            };
            if from != to {
                graph
                    .entry(from.to_string())
                    .or_default()
                    .entry(to.to_string())
                    .or_insert_with(|| format!("{}: {}", relative(path), target.join("::")));
            }
        }
    }
    graph
}

/// The module that a file holds, from the crate's root; empty: the root itself.
fn module_of(path: &Path, source: &str) -> Vec<String> {
    let name = relative(path);
    match name[source.len() + 1..].trim_end_matches(".rs") {
        "lib" | "main" => vec![],
        inside => inside
            .split('/')
            .filter(|part| *part != "mod")
            .map(str::to_string)
            .collect(),
    }
}

fn reexport(item: &syn::Item) -> Option<&syn::ItemUse> {
    match item {
        syn::Item::Use(item) if !matches!(item.vis, syn::Visibility::Inherited) => Some(item),
        _ => None,
    }
}

/// The paths that a `use` names.
fn flattened(tree: &syn::UseTree) -> Vec<Vec<String>> {
    match tree {
        syn::UseTree::Path(path) => flattened(&path.tree)
            .into_iter()
            .map(|mut rest| {
                rest.insert(0, path.ident.to_string());
                rest
            })
            .collect(),
        syn::UseTree::Name(name) => vec![vec![name.ident.to_string()]],
        syn::UseTree::Rename(name) => vec![vec![name.ident.to_string()]],
        syn::UseTree::Glob(_) => vec![vec![]],
        syn::UseTree::Group(group) => group.items.iter().flat_map(flattened).collect(),
    }
}

/// Collects the paths of one module that may lead to other modules, as they are called from the crate's root.
struct Imports<'a> {
    module: &'a [String],
    found: Vec<Vec<String>>,
}

impl Imports<'_> {
    fn add(&mut self, path: Vec<String>) {
        match path.first().map(String::as_str) {
            Some("crate") => self.found.push(path[1..].to_vec()),
            Some("super") => {
                let up = path.iter().take_while(|part| *part == "super").count();
                // A path out of a `mod` written inside a file stays in the file, or nearly: the file is what counts.
                let base = self.module.len().saturating_sub(up);
                let mut full = self.module[..base].to_vec();
                full.extend_from_slice(&path[up..]);
                self.found.push(full);
            }
            // In the root, a module's name alone leads to it.
            Some(_) if self.module.is_empty() => self.found.push(path),
            _ => {}
        }
    }

    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => path.push(ident.to_string()),
                TokenTree::Punct(punct) if punct.as_char() == ':' => {}
                other => {
                    self.add(std::mem::take(&mut path));
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
        }
        self.add(path);
    }
}

impl<'a> Visit<'a> for Imports<'_> {
    fn visit_item(&mut self, item: &'a syn::Item) {
        let attributes = match item {
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            _ => &Vec::new(),
        };
        let test = attributes.iter().any(|attribute| {
            attribute.path().is_ident("cfg")
                && attribute
                    .parse_args::<syn::Ident>()
                    .is_ok_and(|ident| ident == "test")
        });
        if !test {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        for path in flattened(&item.tree) {
            self.add(path);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        self.add(
            path.segments
                .iter()
                .map(|segment| segment.ident.to_string())
                .collect(),
        );
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'a syn::Macro) {
        self.add_tokens(item.tokens.clone());
    }

    // `pub(in path)` is no import.
    fn visit_visibility(&mut self, _: &'a syn::Visibility) {}
}

/// The circles of a graph: for each set of modules that all reach each other, a shortest way round, an import a line.
fn circles(graph: &Graph) -> Vec<String> {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut found = Vec::new();
    for start in graph.keys() {
        if seen.contains(start.as_str()) {
            continue;
        }
        if let Some(circle) = shortest_circle(graph, start) {
            let lines: Vec<String> = circle
                .iter()
                .zip(circle.iter().cycle().skip(1))
                .map(|(from, to)| format!("  {from} -> {to} ({})", graph[*from][*to]))
                .collect();
            seen.extend(circle);
            found.push(lines.join("\n"));
        }
    }
    found
}

/// A shortest way from a module back to itself.
fn shortest_circle<'a>(graph: &'a Graph, start: &'a str) -> Option<Vec<&'a str>> {
    let mut ways: Vec<Vec<&str>> = vec![vec![start]];
    let mut reached = BTreeSet::new();
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            let last = way.last().expect("a way is never empty");
            for next in graph.get(*last).into_iter().flat_map(BTreeMap::keys) {
                if next == start {
                    return Some(way);
                }
                if reached.insert(next.as_str()) {
                    let mut on = way.clone();
                    on.push(next);
                    longer.push(on);
                }
            }
        }
        ways = longer;
    }
    None
}
