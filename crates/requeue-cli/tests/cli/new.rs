//! `requeue new`: what it writes is what the repository has, but for names and the dependency.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use requeue_testkit::repository;

use crate::run::{requeue, scratch};

/// A directory that does not exist yet.
fn fresh(name: &str) -> String {
    let directory = scratch("new").join(name);
    fs::create_dir_all(scratch("new")).unwrap();
    let _ = fs::remove_dir_all(&directory);
    directory.to_str().unwrap().to_owned()
}

fn files(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

/// The texts of the example under another name.
fn example(path: &str, name: &str, krate: &str) -> String {
    let checkout = fs::canonicalize(repository("")).unwrap();
    text(repository("examples/own-handler").join(path))
        .replace("own-handler", name)
        .replace("own_handler", krate)
        .replace("../..", checkout.to_str().unwrap())
}

const OWN_HANDLER: [&str; 7] = [
    ".gitignore",
    "Cargo.toml",
    "event.json",
    "src/lib.rs",
    "src/main.rs",
    "template.yaml",
    "tests/life.rs",
];

#[test]
fn the_project_is_the_example_under_another_name() {
    let directory = fresh("bank-orders");
    let said = requeue(&["new", &directory]).succeeded();
    assert!(said.contains(&format!("\n  cd {directory}\n  cargo test\n")), "{said}");
    assert_eq!(files(Path::new(&directory)), OWN_HANDLER);
    for path in &OWN_HANDLER[1..] {
        let written = text(Path::new(&directory).join(path));
        assert_eq!(written, example(path, "bank-orders", "bank_orders"), "{path}");
    }
    assert!(text(format!("{directory}/Cargo.toml")).contains("name = \"bank-orders\""));
    assert!(text(format!("{directory}/template.yaml")).contains("Binary: \"bank-orders\""));
    assert_eq!(text(format!("{directory}/.gitignore")), "target\n.aws-sam\n");
}

#[test]
fn the_http_project_is_the_ready_lambda_and_its_template() {
    let directory = fresh("webhooks");
    let next = requeue(&["new", &directory, "--http"]).succeeded();
    // `--guided` asks for the hidden parameters, and accepts no empty value for them.
    assert!(next.contains("sam deploy --stack-name ") && !next.contains("--guided"), "{next}");
    let root = Path::new(&directory);
    let expected = [
        ".gitignore",
        "Cargo.toml",
        "event.json",
        "infra/dashboard.yaml",
        "src/main.rs",
        "template.yaml",
    ];
    assert_eq!(files(root), expected);
    assert_eq!(
        text(root.join("src/main.rs")),
        text(repository("crates/requeue-lambda/src/main.rs"))
    );
    // The template includes it by this path.
    assert_eq!(text(root.join("infra/dashboard.yaml")), text(repository("infra/dashboard.yaml")));
    let template = text(repository("template.yaml"))
        .replace("Binary: \"requeue-lambda\"", "Binary: \"webhooks\"");
    assert_eq!(text(root.join("template.yaml")), template);
    let manifest = text(root.join("Cargo.toml"));
    assert!(manifest.contains("name = \"webhooks\""), "{manifest}");
    // The four keys that cargo-lambda would choose otherwise, as they are in the workspace.
    let workspace = text(repository("Cargo.toml"));
    let (_, profile) = manifest.split_once("[profile.release]").unwrap();
    assert!(workspace.contains(&format!("[profile.release]{profile}")), "{profile}");
}

#[test]
fn a_function_in_another_language_has_the_ready_lambda_beside_it() {
    for (option, own, handler) in [
        (
            "--python",
            &["function/app.py", "function/requirements.txt", "test_app.py"][..],
            "Handler: app.handler\n      Runtime: python",
        ),
        (
            "--node",
            &["function/app.test.ts", "function/app.ts", "function/package.json"],
            "Handler: app.handler\n      Runtime: nodejs",
        ),
        (
            "--java",
            &[
                "function/pom.xml",
                "function/src/main/java/orders/Handler.java",
                "function/src/test/java/orders/HandlerTest.java",
            ],
            "Handler: orders.Handler::handleRequest\n      Runtime: java",
        ),
    ] {
        let directory = fresh("payments");
        let said = requeue(&["new", &directory, option]).succeeded();
        assert!(said.ends_with("\n  sam build && sam deploy --guided\n"), "{said}");
        let root = Path::new(&directory);
        let around = [
            ".gitignore",
            "README.md",
            "requeue/Cargo.toml",
            "requeue/infra/dashboard.yaml",
            "requeue/src/main.rs",
            "requeue/template.yaml",
            "samconfig.toml",
            "template.yaml",
        ];
        let mut expected = [own, &around].concat();
        expected.sort_unstable();
        assert_eq!(files(root), expected);
        // tests/starters_test.py runs the tests of the function.
        let template = text(root.join("template.yaml"));
        assert!(template.contains(handler) && !template.contains("# Properties"), "{template}");
        assert!(template.contains("TargetFunction: !GetAtt Function.Arn"), "{template}");
        let readme = text(root.join("README.md"));
        assert!(
            readme.contains("requeue serve --target -- ") && !readme.contains("TEST"),
            "{readme}"
        );
        let manifest = text(root.join("requeue/Cargo.toml"));
        assert!(manifest.contains("name = \"retries\""), "{manifest}");
        assert!(text(root.join("requeue/template.yaml")).contains("Binary: \"retries\""));
        fs::remove_dir_all(root).unwrap();
    }
}

#[test]
fn a_project_has_one_language() {
    for options in [["--python", "--node"], ["--http", "--java"], ["--node", "--cargo-lambda"]] {
        let run = requeue(&[&["new", "target/some-orders"], &options[..]].concat());
        assert_eq!(run.status, 2, "{options:?}");
        assert!(run.stderr.contains("cannot be used with"), "{}", run.stderr);
    }
}

#[test]
fn a_template_for_cargo_lambda_has_its_variables_in_place_of_the_name() {
    let directory = fresh("template");
    let said = requeue(&["new", &directory, "--cargo-lambda"]).succeeded();
    assert!(said.contains(&format!("cargo lambda new orders --template {directory}\n")), "{said}");
    assert!(text(format!("{directory}/CargoLambda.toml")).contains("render_all_files = true"));
    let root = format!("{directory}/template");
    assert_eq!(files(Path::new(&root)), OWN_HANDLER);
    for path in &OWN_HANDLER[1..] {
        let krate = r#"{{ project_name | replace: "-", "_" }}"#;
        let written = text(format!("{root}/{path}"));
        assert_eq!(written, example(path, "{{ project_name }}", krate), "{path}");
    }
}

#[test]
fn the_json_has_each_file_and_the_next_commands() {
    for (options, last) in
        [(&[][..], "sam build && sam deploy --guided"), (&["--cargo-lambda"], "cargo test")]
    {
        let directory = fresh("in-json");
        let said = requeue(&[&["new", &directory, "--json"], options].concat()).succeeded();
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        let mut listed: Vec<&str> =
            said["files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap()).collect();
        listed.sort_unstable();
        assert_eq!(listed, files(Path::new(&directory)), "{said}");
        assert_eq!(said["directory"], directory);
        assert_eq!(said["next"].as_array().unwrap().last().unwrap(), last);
    }
}

#[test]
fn another_checkout_can_be_named() {
    let directory = fresh("elsewhere");
    let other = scratch("another \"checkout\"");
    fs::create_dir_all(other.join("crates/requeue-lambda")).unwrap();
    fs::write(other.join("Cargo.toml"), "").unwrap();
    requeue(&["new", &directory, "--requeue", other.to_str().unwrap()]).succeeded();
    let manifest = text(format!("{directory}/Cargo.toml"));
    assert!(manifest.contains("/another \\\"checkout\\\"\""), "{manifest}");
}

#[test]
fn a_name_that_is_no_string_in_yaml_is_written_as_one() {
    for name in ["on", "yes", "null", "Y"] {
        let directory = fresh(name);
        for arguments in [&["new", &directory][..], &["new", &directory, "--http"]] {
            requeue(arguments).succeeded();
            let template = text(format!("{directory}/template.yaml"));
            assert!(template.contains(&format!("Binary: \"{name}\"")), "{arguments:?}");
            fs::remove_dir_all(&directory).unwrap();
        }
    }
}

#[test]
fn a_checkout_that_no_manifest_can_name_is_refused() {
    let directory = fresh("unnamed");
    for name in [&b"a line\nand another"[..], b"not \xff UTF-8"] {
        let other = scratch("new").join(OsStr::from_bytes(name));
        fs::create_dir_all(other.join("crates/requeue-lambda")).unwrap();
        fs::write(other.join("Cargo.toml"), "").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_requeue"))
            .args(["new".as_ref(), directory.as_ref(), "--requeue".as_ref(), other.as_os_str()])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("cannot be written into a Cargo.toml"), "{said}");
        assert!(!Path::new(&directory).exists());
    }
}

#[test]
fn a_name_that_no_package_can_have_is_refused() {
    let refused = |arguments: &[&str]| {
        let run = requeue(&[&["new"], arguments].concat());
        assert_eq!((run.status, run.stdout.as_str()), (1, ""), "{arguments:?}");
        run.stderr
    };
    let long = "x".repeat(65);
    for name in ["1st", "-", "a.b", "über", "a b", "..", &long] {
        let name = format!("target/{name}");
        assert_eq!(
            refused(&["--", &name]),
            format!(
                "error: {name} cannot be the name of a package: a name has a letter and up to 63 \
                 letters, digits, hyphens and underscores; choose one such as orders\n"
            )
        );
    }
    for name in ["fn", "tokio", "requeue", "examples"] {
        assert_eq!(
            refused(&[name]),
            format!(
                "error: {name} cannot be the name of a package: Rust, cargo or a dependency of the \
                 project uses it; choose another one\n"
            )
        );
    }
    let taken = fresh("taken");
    fs::create_dir(&taken).unwrap();
    assert_eq!(
        refused(&[&taken]),
        format!("error: {taken} exists already; choose another name, or remove it\n")
    );
    assert_eq!(
        refused(&["target/some-orders", "--requeue", "docs"]),
        "error: docs is not a checkout of Requeue; name the directory that has its Cargo.toml and \
         crates/requeue-lambda\n"
    );
    assert!(!repository("target/some-orders").exists());
}

#[test]
fn the_page_shows_what_the_command_prints_and_what_the_example_tests() {
    let page = text(repository("docs/start/rust-handler.md"));
    let directory = fresh("orders");
    let said = requeue(&["new", &directory]).succeeded().replace(&directory, "orders");
    assert!(page.contains(&format!("```text\n{said}```")), "{said}");
    let files = ["own-handler/src/lib.rs", "own-handler/tests/life.rs", "bulk.rs"]
        .map(|path| text(repository("examples").join(path)));
    let blocks: Vec<&str> = page
        .split("```rust,ignore\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert_eq!(blocks.len(), 3);
    for shown in blocks {
        assert!(files.iter().any(|file| file.contains(shown)), "{shown}");
    }
}
