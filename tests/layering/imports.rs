//! The imports: the modules of a package and the paths that they name, read from the sources
//! without a compiler. A path that a parent exports for its child counts as the child's.

use std::collections::{BTreeMap, BTreeSet};

/// Modules, and those that each imports. What a module takes from a parent of its own is left out:
/// a file is part of its directory's `mod.rs`.
pub(crate) type Imports = BTreeMap<String, BTreeSet<String>>;

/// The paths that each module names.
type Paths = BTreeMap<String, Vec<String>>;

/// The imports of modules, by their paths in the crate and their code.
pub(crate) fn imports(modules: &BTreeMap<String, String>) -> Imports {
    let paths: Paths = modules.iter().map(|(module, code)| (module.clone(), paths(code))).collect();
    let imported = |module: &String| {
        let named = paths[module].iter().filter_map(|path| absolute(module, path, &paths));
        let found = named.map(|path| owner(&path, &paths));
        found.filter(|other| !is_above(other, module)).collect()
    };
    paths.keys().map(|module| (module.clone(), imported(module))).collect()
}

fn is_above(other: &str, module: &str) -> bool {
    other.is_empty() || format!("{module}::").starts_with(&format!("{other}::"))
}

/// The same of the top-level modules, each with all that is in it.
pub(crate) fn of_rooms(imports: &Imports) -> Imports {
    let room = |module: &str| module.split("::").next().unwrap_or_default().to_owned();
    let mut rooms = Imports::new();
    for (module, others) in imports.iter().filter(|(module, _)| !module.is_empty()) {
        let others = others.iter().map(|other| room(other)).filter(|other| *other != room(module));
        rooms.entry(room(module)).or_default().extend(others);
    }
    rooms
}

/// Modules of which each imports the next, and the last one the first.
pub(crate) fn circle(imports: &Imports) -> Vec<&str> {
    let mut left: BTreeSet<&str> = imports.keys().map(String::as_str).collect();
    loop {
        let imports_none = |module: &&str| imports[*module].iter().all(|o| !left.contains(&**o));
        let serves_none =
            |module: &&str| left.iter().all(|other| !imports[*other].contains(*module));
        let ends = |module: &&str| imports_none(module) || serves_none(module);
        let free: Vec<&str> = left.iter().copied().filter(ends).collect();
        if free.is_empty() {
            break;
        }
        left.retain(|module| !free.contains(module));
    }
    let mut path: Vec<&str> = left.first().copied().into_iter().collect();
    while let Some(last) = path.last() {
        let next = imports[*last].iter().find(|other| left.contains(other.as_str())).unwrap();
        if let Some(at) = path.iter().position(|module| module == next) {
            return path.split_off(at);
        }
        path.push(next);
    }
    path
}

fn paths(code: &str) -> Vec<String> {
    let (mut found, mut rest, mut tree) = (Vec::new(), String::new(), String::new());
    for line in code.lines() {
        let is_use = ["use ", "pub use ", "pub(crate) use ", "pub(super) use "]
            .iter()
            .find_map(|start| line.trim_start().strip_prefix(start));
        match is_use {
            Some(begin) => begin.clone_into(&mut tree),
            None if !tree.is_empty() => tree.push_str(line.trim()),
            None => rest.extend([line, "\n"]),
        }
        if let Some(whole) = tree.strip_suffix(';') {
            branches(whole, &mut found);
            tree.clear();
        }
    }
    let names = rest.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    found.extend(names.filter(|name| name.contains("::")).map(str::to_owned));
    found
}

/// `a::{b, c::{d, e}}` names `a::b`, `a::c::d` and `a::c::e`.
fn branches(tree: &str, found: &mut Vec<String>) {
    let Some((stem, inner)) = tree.strip_suffix('}').and_then(|tree| tree.split_once('{')) else {
        found.push(tree.trim().to_owned());
        return;
    };
    let (mut depth, mut start) = (0, 0);
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                branches(&format!("{stem}{}", inner[start..at].trim()), found);
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// A path from the crate's root; `None` of another crate, or of a name that is in scope.
fn absolute(module: &str, path: &str, modules: &Paths) -> Option<String> {
    let mut place: Vec<&str> = module.split("::").filter(|name| !name.is_empty()).collect();
    let mut path = path;
    if let Some(rest) = path.strip_prefix("crate::") {
        return Some(rest.to_owned());
    }
    path = path.strip_prefix("self::").unwrap_or(path);
    let mut is_own = false;
    while let Some(rest) = path.strip_prefix("super::") {
        (path, is_own) = (rest, true);
        place.pop();
    }
    let first = path.split("::").next().unwrap_or_default();
    let child = place.iter().copied().chain([first]).collect::<Vec<_>>().join("::");
    let absolute = place.into_iter().chain([path]).collect::<Vec<_>>().join("::");
    (is_own || modules.contains_key(&child)).then_some(absolute)
}

/// The module in which the thing at a path stands.
fn owner(path: &str, modules: &Paths) -> String {
    let names: Vec<&str> = path.split("::").collect();
    let mut at = names.len();
    while at > 0 && !modules.contains_key(&names[..at].join("::")) {
        at -= 1;
    }
    let module = names[..at].join("::");
    let exported = names.get(at).and_then(|name| {
        let exports =
            |path: &&String| path.rsplit("::").next() == Some(name) && path.contains("::");
        let exported = modules[&module].iter().filter(exports);
        let mut children = exported.filter_map(|exported| absolute(&module, exported, modules));
        children.find(|child| child != path && child.starts_with(&format!("{module}::")))
    });
    exported.map_or(module, |child| owner(&child, modules))
}

#[test]
fn paths_are_read_as_the_compiler_reads_them() {
    let modules = [
        ("", "mod a;\nmod b;"),
        ("a", "mod x;\npub use x::Thing;\nuse crate::b;"),
        ("a::x", "use super::Own;\nfn f() { crate::b::y::g() }"),
        ("b", "use std::fmt;\nuse crate::a::{\n    Thing, x::{self, Other}\n};\nfn g() { y::h() }"),
        ("b::y", "use super::super::a::Own;"),
    ];
    let modules = modules.map(|(module, code)| (module.to_owned(), code.to_owned()));
    let found = imports(&modules.into());
    let of = |module: &str| found[module].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!((of("a"), of("a::x")), (vec!["a::x", "b"], vec!["b::y"]));
    assert_eq!((of("b"), of("b::y")), (vec!["a::x", "b::y"], vec!["a"]));
    assert_eq!(circle(&found), ["a", "a::x", "b::y"]);
    assert_eq!(circle(&of_rooms(&found)), ["a", "b"]);
}
