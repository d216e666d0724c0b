//! Forbidden knowledge: reads the sources of all packages and fails if a module names something
//! that it must not know.

#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use requeue_testkit::ROOT_PAGES;

mod imports;

use imports::{circle, imports, of_rooms};

/// The rooms of the library from the hosts down to the plain values: each imports only rooms of the
/// lines below its own. A host calls the processor, and the processor calls the steps; no step
/// calls the processor or a host.
const FLOORS: [&[&str]; 18] = [
    &["testing"],
    &["lambda", "worker"],
    &["config", "measured", "processor"],
    &["settle", "telemetry"],
    &["shared_table", "handler", "plan"],
    &["gate", "message"],
    &["delivery"],
    &["arrivals", "producer"],
    &["settings"],
    &["observer"],
    &["report"],
    &["limit", "sender", "trace"],
    &["queue", "table", "wire"],
    &["classify", "policy", "result_ext"],
    &["disposition", "state"],
    &["failure"],
    &["aws", "clock", "delay", "pointer", "scope"],
    &["json", "lock", "words"],
];

/// A name, the only places that may use it, and why.
const ONLY_IN: [(&str, &[&str], &str); 12] = [
    (
        "aws_sdk_sqs::",
        &[
            "src/queue/sqs.rs",
            "crates/requeue-embedded/src/",
            "crates/requeue-cli/src/config/mod.rs",
            "crates/requeue-cli/src/dlq/sqs.rs",
            "crates/requeue-cli/src/doctor/",
            "crates/requeue-cli/src/failed_call.rs",
            "crates/requeue-cli/src/function.rs",
            "crates/requeue-cli/src/invoke.rs",
            "crates/requeue-cli/src/queue_argument.rs",
            "crates/requeue-cli/src/send.rs",
            "crates/requeue-aws/src/endpoint.rs",
        ],
        "the port is the only way to the queue, but for its owner and its producers, whether there are credentials, where AWS is, and what its errors mean",
    ),
    (
        "requeue_aws::",
        &[
            "crates/requeue-cli/src/doctor/",
            "crates/requeue-cli/src/endpoints.rs",
            "crates/requeue-cli/src/function.rs",
            "crates/requeue-cli/src/queue_argument.rs",
            "crates/requeue-lambda/src/function/lambda.rs",
            "crates/requeue-lambda/src/secrets/fetch.rs",
            "src/table/dynamodb.rs",
        ],
        "one place looks at deployments, and two at functions and endpoints for it and for others, one says where SQS is asked, one invokes a function, one asks for secrets, one is a table",
    ),
    (
        "aws_config::",
        &["src/aws", "crates/requeue-cli/src/sdk.rs"],
        "one place says what clients are made of",
    ),
    (
        "lambda_runtime::",
        &["src/lambda/", "crates/requeue-cli/src/local_function/program.rs"],
        "the rest runs without Lambda; one says what a function must call",
    ),
    (
        "hyper::",
        &[
            "crates/requeue-lambda/src/function/connection.rs",
            "crates/requeue-lambda/src/http/",
            "crates/requeue-embedded/src/",
            "crates/requeue-cli/src/endpoint.rs",
        ],
        "HTTP is one handler among others, and one asks Lambda",
    ),
    (
        "hyper_util::",
        &[
            "crates/requeue-lambda/src/function/connection.rs",
            "crates/requeue-lambda/src/http/",
            "crates/requeue-embedded/src/",
            "crates/requeue-cli/src/endpoint.rs",
            "src/aws.rs",
        ],
        "HTTP is one handler among others, one asks Lambda, and one place reads the errors of the SDK's HTTP client",
    ),
    (
        "rustls::",
        &["crates/requeue-lambda/src/function/connection.rs", "crates/requeue-lambda/src/http/"],
        "HTTP is one handler among others, and one asks Lambda",
    ),
    ("ring::hmac", &["crates/requeue-lambda/src/http/"], "only what is posted is signed"),
    (
        "std::env",
        &[
            "src/config/",
            "crates/requeue-lambda/src/config/",
            "crates/requeue-lambda/src/main.rs",
            "crates/requeue-cli/src/environment.rs",
            "crates/requeue-cli/src/invoke.rs",
            "crates/requeue-cli/src/local_function/program.rs",
        ],
        "settings are read once, in one place; a function that is served inherits the rest, and arguments are no settings",
    ),
    (
        "SystemTime::now",
        &["crates/requeue-sqs/src/clock.rs", "crates/requeue-cli/src/"],
        "time is injected",
    ),
    ("rand::", &["src/clock.rs"], "chance is injected"),
    ("static mut", &[], "there is no global mutable state"),
];

/// What the pure core may import.
const POLICY_IMPORTS: [&str; 9] = [
    "std::",
    "super::",
    "backoff::",
    "crate::delay::",
    "crate::disposition::",
    "crate::failure::",
    "crate::pointer::",
    "crate::state::",
    "crate::policy",
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// All files below a directory, but for those that tools have put there.
fn everything(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true if path.ends_with("node_modules") || path.ends_with("target") => {}
            true => everything(&path, found),
            false => found.push(path),
        }
    }
}

/// The directories of the library's and every other member's sources.
fn rooms() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let members = fs::read_dir(root.join("crates")).unwrap().map(|member| member.unwrap().path());
    // The tools of the tests are tests.
    let members = members.filter(|member| !member.ends_with("requeue-testkit"));
    members.chain([root.to_owned()]).map(|member| member.join("src")).collect()
}

/// Path in the repository, and the lines of code: without comments, and without tests.
fn code() -> Vec<(String, Vec<String>)> {
    let mut paths = Vec::new();
    for room in rooms() {
        let before = paths.len();
        sources(&room, &mut paths);
        assert!(paths.len() > before, "there are no sources in {}", room.display());
    }
    assert!(paths.len() > 30, "the sources are there");
    let of_tests = |path: &str| path.contains("/tests/") || path.ends_with("/tests.rs");
    paths
        .into_iter()
        .map(|path| {
            let name =
                path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().to_str().unwrap().to_owned();
            let text = fs::read_to_string(&path).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            let is_tests = |at: &usize| {
                let mut marked = lines[*at..].iter().skip_while(|line| line.starts_with("#["));
                lines[*at] == "#[cfg(test)]"
                    && marked
                        .next()
                        .is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'))
            };
            let end = (0..lines.len()).find(is_tests).unwrap_or(lines.len());
            let code = lines[..end].iter().filter(|line| !line.trim_start().starts_with("//"));
            (name, code.map(|line| (*line).to_owned()).collect())
        })
        .filter(|(name, _)| !of_tests(&format!("/{name}")))
        .collect()
}

#[test]
fn a_room_knows_only_what_it_may_know() {
    let mut trouble = Vec::new();
    for (path, lines) in code() {
        for (name, allowed, why) in ONLY_IN {
            let uses = lines.iter().any(|line| {
                line.match_indices(name).any(|(at, _)| {
                    let before = line[..at].chars().next_back();
                    before.is_none_or(|c| !c.is_alphanumeric() && c != '_')
                })
            });
            if uses && !allowed.iter().any(|place| path.starts_with(place)) {
                trouble.push(format!("{path} names `{name}`: {why}"));
            }
        }
    }
    assert!(trouble.is_empty(), "{}", trouble.join("\n"));
}

#[test]
fn the_policy_imports_std_and_plain_types_only() {
    for (path, lines) in code() {
        if !path.starts_with("src/policy/") {
            continue;
        }
        for line in &lines {
            if let Some(import) = line.strip_prefix("use ") {
                assert!(
                    POLICY_IMPORTS.iter().any(|allowed| import.starts_with(allowed)),
                    "{path}: {line}"
                );
            }
            for forbidden in ["async ", "tracing", "Clock", "Sampler", "Instant"] {
                assert!(!line.contains(forbidden), "{path}: {line}");
            }
        }
    }
}

#[test]
fn planning_is_pure_and_the_executor_knows_no_policy() {
    for (path, lines) in code() {
        let forbidden: &[&str] = match path.as_str() {
            "src/processor/executor.rs" => {
                &["crate::policy", "crate::settle", "crate::classify", "BatchProcessor", "Handler<"]
            }
            path if path.starts_with("src/plan/") => {
                &["async ", "tracing", "tokio::", "Clock", "Sampler", "Instant", "crate::settle"]
            }
            _ => continue,
        };
        for line in &lines {
            assert!(!forbidden.iter().any(|name| line.contains(name)), "{path}: {line}");
        }
    }
}

/// The modules of each package by their paths in the crate, and their code.
fn packages() -> BTreeMap<String, BTreeMap<String, String>> {
    let mut packages = BTreeMap::<_, BTreeMap<String, String>>::new();
    for (path, lines) in code() {
        let (package, file) = path.split_once("src/").unwrap();
        let file = file.strip_suffix(".rs").unwrap();
        let module = file.strip_suffix("/mod").unwrap_or(file).replace('/', "::");
        let module = if ["lib", "main"].contains(&&*module) { String::new() } else { module };
        let modules = packages.entry(package.to_owned()).or_default();
        modules.entry(module).or_default().push_str(&(lines.join("\n") + "\n"));
    }
    packages
}

/// Those of the library.
fn modules() -> BTreeMap<String, String> {
    packages().remove("").unwrap()
}

#[test]
fn no_files_of_a_package_import_each_other_in_a_circle() {
    let packages = packages();
    assert!(packages.len() > 5 && imports(&packages[""])["processor"].contains("plan"));
    for (package, modules) in packages {
        let imports = imports(&modules);
        for imports in [&imports, &of_rooms(&imports)] {
            let circle = circle(imports);
            assert!(circle.is_empty(), "{package}src has a circle: {}", circle.join(" -> "));
        }
    }
}

#[test]
fn no_room_imports_one_above_it() {
    let floor = |room: &str| FLOORS.iter().position(|rooms| rooms.contains(&room));
    for (room, others) in of_rooms(&imports(&modules())) {
        let own = floor(&room).unwrap_or_else(|| panic!("{room} stands on no floor"));
        for other in others {
            assert!(floor(&other) > Some(own), "{room} imports {other}, which is not below it");
        }
    }
}

/// The types that a module defines outside of functions, also in a macro.
fn types(code: &str) -> impl Iterator<Item = &str> {
    code.lines().filter_map(|line| {
        let line = line.strip_prefix("    ").filter(|line| line.starts_with("pub")).unwrap_or(line);
        let line = ["pub(crate) ", "pub(super) ", "pub "]
            .iter()
            .find_map(|start| line.strip_prefix(start))
            .unwrap_or(line);
        let name = ["struct ", "enum ", "trait ", "type "]
            .iter()
            .find_map(|kind| line.strip_prefix(kind))?;
        name.split(|c: char| !c.is_alphanumeric()).next()
    })
}

#[test]
fn one_name_is_one_type_of_the_library() {
    let mut modules = modules();
    // It wraps private types for the benchmarks under their own names.
    modules.remove("measured");
    let mut seen = BTreeMap::new();
    for (module, code) in &modules {
        for name in types(code) {
            if let Some(other) = seen.insert(name, module) {
                panic!("{name} is defined in {other} and in {module}");
            }
        }
    }
    assert!(seen.len() > 100);
}

#[test]
fn no_file_is_longer_than_400_lines() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (path, _) in code() {
        let text = fs::read_to_string(root.join(&path)).unwrap();
        let lines = text.lines().take_while(|line| *line != "mod tests {").count();
        assert!(lines <= 401, "{path} has {lines} lines: split it by noun");
    }
}

#[test]
fn every_file_that_a_text_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for place in ["src", "crates", "tests", "benches", "examples", "docs", "infra"] {
        everything(&root.join(place), &mut files);
    }
    files.extend(ROOT_PAGES.map(|name| root.join(name)));
    let mut missing = Vec::new();
    for file in &files {
        let is_code = file.extension().is_some_and(|extension| extension == "rs");
        if !is_code && file.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = fs::read_to_string(file).unwrap();
        let prose = text.lines().filter(|line| !is_code || line.trim_start().starts_with("//"));
        for name in prose.flat_map(|line| line.split('`').skip(1).step_by(2)) {
            let is_path = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
            let is_file = [".rs", ".py", ".md", ".patch"].iter().any(|end| name.ends_with(end));
            if is_path && is_file && !files.iter().any(|file| file.ends_with(name)) {
                missing.push(format!("{} names {name}", file.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn the_queue_is_called_by_settling_and_the_worker_only() {
    for (path, lines) in code() {
        let exempt =
            ["src/settle/", "src/worker/", "crates/requeue-embedded/src/", "crates/requeue-cli/"]
                .iter()
                .any(|room| path.starts_with(room));
        for line in lines.iter().filter(|_| !exempt) {
            for call in [
                "queue.send(",
                "queue.delete(",
                "queue.change_visibility(",
                ".receive(&",
                ".describe(",
            ] {
                assert!(!line.contains(call), "{path}: {line}");
            }
        }
    }
}

#[test]
fn every_file_says_what_it_is_for() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (path, _) in code() {
        let text = fs::read_to_string(root.join(&path)).unwrap();
        assert!(
            text.starts_with("//! "),
            "{path} begins with what it is for and what it must not know"
        );
    }
}

#[test]
fn no_file_is_compiled_into_several_targets() {
    let mut paths = Vec::new();
    for directory in ["src", "crates", "tests", "benches", "examples"] {
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(directory), &mut paths);
    }
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let is_elsewhere = text.lines().any(|line| line.trim_start().starts_with("#[path"));
        assert!(
            !is_elsewhere,
            "{}: a module that two targets need belongs in a package of its own",
            path.display()
        );
    }
}
