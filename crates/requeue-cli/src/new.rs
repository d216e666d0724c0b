//! `requeue new`. The files are those of `examples/own-handler` and of the ready Lambda; only
//! names and the dependency on Requeue differ.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use crate::output::{self, outln};
use crate::{Error, bail};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The directory to create. Its last part becomes the name of the package.
    #[arg(value_name = "NAME")]
    directory: PathBuf,
    #[command(flatten)]
    kind: StarterKind,
    /// A checkout of Requeue to depend on [default: the checkout that built this command, or else
    /// the published version]
    #[arg(long, value_name = "PATH")]
    requeue: Option<PathBuf>,
    /// Write a template for `cargo lambda new --template NAME` instead of a project.
    #[arg(long, conflicts_with_all = ["python", "node", "java"])]
    cargo_lambda: bool,
    /// Print JSON: the directory, its files, and the commands to go on with.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// The target of the messages, instead of a handler in Rust.
#[derive(clap::Args)]
#[group(multiple = false)]
#[allow(clippy::struct_excessive_bools, reason = "options of a command line")]
struct StarterKind {
    /// Use the ready Lambda, which posts each message to a URL, instead of a handler of your own.
    #[arg(long)]
    http: bool,
    /// Write a function in Python, with Powertools, which the ready Lambda invokes.
    #[arg(long)]
    python: bool,
    /// Write a function in TypeScript, with Powertools, which the ready Lambda invokes.
    #[arg(long)]
    node: bool,
    /// Write a function in Java, which the ready Lambda invokes.
    #[arg(long)]
    java: bool,
}

impl StarterKind {
    fn language(&self) -> Option<&'static Language> {
        let given = [self.python, self.node, self.java];
        LANGUAGES.iter().zip(given).find_map(|(language, given)| given.then_some(language))
    }
}

const AROUND: [File; 3] = [
    ("template.yaml", include_str!("../templates/function.yaml")),
    ("samconfig.toml", include_str!("../templates/function-samconfig.toml")),
    ("README.md", include_str!("../templates/function-readme.md")),
];
/// The directory of the ready Lambda beside a function, and the package there.
const READY_LAMBDA: &str = "requeue";
const RETRIES: &str = "retries";

type File = (&'static str, &'static str);

const EXAMPLE: &str = "own-handler";
const OWN_HANDLER: [File; 6] = [
    ("Cargo.toml", include_str!("../templates/own-handler.toml")),
    ("src/main.rs", include_str!("../templates/main.rs")),
    ("src/lib.rs", include_str!("../templates/lib.rs")),
    ("tests/life.rs", include_str!("../templates/life.rs")),
    ("template.yaml", include_str!("../templates/template.yaml")),
    ("event.json", include_str!("../templates/event.json")),
];
const HTTP: [File; 5] = [
    ("Cargo.toml", include_str!("../templates/http.toml")),
    ("src/main.rs", include_str!("../templates/http.rs")),
    ("template.yaml", include_str!("../templates/http.yaml")),
    ("infra/dashboard.yaml", include_str!("../templates/dashboard.yaml")),
    ("event.json", include_str!("../templates/event.json")),
];
const GITIGNORE: File = (".gitignore", "target\n.aws-sam\n");

/// Makes cargo-lambda replace names in all files of the template, and ask no questions.
const CARGO_LAMBDA: &str = "[template]\ndisable_default_prompts = true\nrender_all_files = true\n";
const LIQUID_NAME: &str = "{{ project_name }}";
const LIQUID_CRATE: &str = r#"{{ project_name | replace: "-", "_" }}"#;

const MAX_NAME: usize = 64;
/// Names that cargo refuses, and names of the project's dependencies.
const RESERVED: &str = "\
    abstract alloc as async await become box break build const continue core crate deps do dyn \
    else enum examples extern false final fn for gen if impl in incremental let loop macro match \
    mod move mut override priv pub ref requeue requeue-lambda return self serde static std \
    struct super test tokio trait true try type typeof union unsafe unsized use virtual where \
    while yield";

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let directory = &arguments.directory;
    let name = package_name(directory)?;
    let checkout = checkout(arguments.requeue.as_deref())?;
    let checkout = checkout.as_deref();
    match fs::create_dir(directory) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let shown = directory.display();
            bail!("{shown} exists already; choose another name, or remove it");
        }
        made => made.map_err(|error| unwritable(directory, &error))?,
    }
    let (name, krate, root) = if arguments.cargo_lambda {
        write(&directory.join("CargoLambda.toml"), CARGO_LAMBDA)?;
        (LIQUID_NAME, LIQUID_CRATE.to_owned(), directory.join("template"))
    } else {
        (name, name.replace('-', "_"), directory.clone())
    };
    let files = if let Some(language) = arguments.kind.language() {
        function(language, checkout)
    } else if arguments.kind.http {
        rust(&HTTP, "requeue-lambda", name, &krate, checkout)
    } else {
        rust(&OWN_HANDLER, EXAMPLE, name, &krate, checkout)
    };
    for (path, text) in &files {
        write(&root.join(path), text)?;
    }
    tell(arguments, name, &files)?;
    Ok(ExitCode::SUCCESS)
}

fn rust(
    files: &[File],
    example: &str,
    name: &str,
    krate: &str,
    checkout: Option<&Path>,
) -> Vec<(String, String)> {
    let named = files.iter().chain([&GITIGNORE]).map(|(path, text)| {
        let text = match *path {
            "Cargo.toml" => manifest(text, example, name, checkout),
            "template.yaml" => text.replace(&binary(example), &binary(name)),
            _ => text.replace("own_handler", krate),
        };
        ((*path).to_owned(), text)
    });
    named.collect()
}

fn function(language: &Language, checkout: Option<&Path>) -> Vec<(String, String)> {
    let own = language.files.iter().chain(&AROUND).map(|(path, text)| {
        let text = match *path {
            "template.yaml" => text.replace("    # Properties", language.properties),
            "README.md" => {
                text.replace("TEST", &language.test.join(" && ")).replace("SERVE", language.serve)
            }
            _ => (*text).to_owned(),
        };
        ((*path).to_owned(), text)
    });
    let (ignore, ignored) = GITIGNORE;
    let ignored = format!("{ignored}{}", language.ignored);
    let ready = rust(&HTTP, "requeue-lambda", RETRIES, RETRIES, checkout);
    let ready = ready.into_iter().filter(|(path, _)| path != ignore && path != "event.json");
    own.chain([(ignore.to_owned(), ignored)])
        .chain(ready.map(|(path, text)| (format!("{READY_LAMBDA}/{path}"), text)))
        .collect()
}

fn tell(arguments: &Arguments, name: &str, files: &[(String, String)]) -> Result<(), Error> {
    let (description, steps) = next(arguments, name);
    if arguments.json {
        let prefix = if arguments.cargo_lambda { "template/" } else { "" };
        let files = files.iter().map(|(path, _)| format!("{prefix}{path}"));
        let own = arguments.cargo_lambda.then(|| "CargoLambda.toml".to_owned());
        return output::json(&json!({
            "directory": arguments.directory.display().to_string(),
            "files": own.into_iter().chain(files).collect::<Vec<_>>(),
            "next": steps,
        }));
    }
    outln!("{} {description}. Next:\n", arguments.directory.display())?;
    for step in steps {
        outln!("  {step}")?;
    }
    Ok(())
}

fn package_name(directory: &Path) -> Result<&str, Error> {
    let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let rule = if !name.starts_with(|first: char| first.is_ascii_alphabetic())
        || !name.chars().all(plain)
        || name.len() > MAX_NAME
    {
        format!(
            "a name has a letter and up to {} letters, digits, hyphens and underscores; choose one \
             such as orders",
            MAX_NAME - 1
        )
    } else if RESERVED.split(' ').any(|reserved| reserved == name) {
        "Rust, cargo or a dependency of the project uses it; choose another one".to_owned()
    } else {
        return Ok(name);
    };
    Err(format!("{} cannot be the name of a package: {rule}", directory.display()).into())
}

/// The checkout of Requeue to depend on, if it is not the published version.
fn checkout(given: Option<&Path>) -> Result<Option<PathBuf>, Error> {
    let Some(path) = given else {
        let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
        return Ok(built_in.filter(|path| is_checkout(path)).map(Path::to_owned));
    };
    if !is_checkout(path) {
        bail!(
            "{} is not a checkout of Requeue; name the directory that has its Cargo.toml and \
             crates/requeue-lambda",
            path.display()
        );
    }
    // The project is in another directory, so the path has to be absolute.
    let path = fs::canonicalize(path)?;
    if path.to_str().is_none_or(|path| path.contains(char::is_control)) {
        bail!(
            "{} cannot be written into a Cargo.toml, where a path is UTF-8 without control \
             characters; rename the directory",
            path.display()
        );
    }
    Ok(Some(path))
}

fn is_checkout(path: &Path) -> bool {
    path.join("Cargo.toml").is_file() && path.join("crates/requeue-lambda").is_dir()
}

/// `Cargo.toml` with the new name, and with paths or versions that work outside the repository.
fn manifest(text: &str, example: &str, name: &str, checkout: Option<&Path>) -> String {
    let text = text.replace(&format!("name = \"{example}\""), &format!("name = \"{name}\""));
    let Some(root) = checkout else {
        let version = format!("version = \"{}\"", env!("CARGO_PKG_VERSION"));
        return text
            .replace("path = \"../../crates/requeue-lambda\"", &version)
            .replace("path = \"../..\"", &version);
    };
    text.replace("../..", &root.display().to_string().replace('\\', "\\\\").replace('"', "\\\""))
}

fn binary(name: &str) -> String {
    // In quotes, because YAML reads `on` and `yes` as booleans.
    format!("Binary: \"{name}\"")
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent)
        .and_then(|()| fs::write(path, text))
        .map_err(|error| unwritable(path, &error).into())
}

fn unwritable(path: &Path, error: &std::io::Error) -> String {
    format!("{} cannot be written: {error}", path.display())
}

fn next(arguments: &Arguments, name: &str) -> (&'static str, Vec<String>) {
    let directory = arguments.directory.display();
    if arguments.cargo_lambda {
        return (
            "is a template for cargo-lambda",
            vec![
                format!("cargo lambda new orders --template {directory}"),
                "cd orders".to_owned(),
                "cargo test".to_owned(),
            ],
        );
    }
    let enter = format!("cd {directory}");
    if let Some(language) = arguments.kind.language() {
        let test = language.test.iter().map(|step| (*step).to_owned());
        let deploy = "sam build && sam deploy --guided".to_owned();
        let steps = [enter].into_iter().chain(test).chain([deploy]).collect();
        return ("has a function, its tests, and a template that deploys it with Requeue", steps);
    }
    if arguments.kind.http {
        // Not guided: `--guided` asks for each of the template's parameters.
        let stack = name.replace('_', "-");
        let deploy = format!(
            "sam deploy --stack-name {stack} --resolve-s3 --capabilities CAPABILITY_IAM \\\n    \
             --parameter-overrides TargetUrl=https://api.example.com/{stack}"
        );
        let steps = vec![enter, "sam build".to_owned(), deploy];
        return ("has the ready Lambda and its template", steps);
    }
    let steps = vec![
        enter,
        "cargo test".to_owned(),
        format!("cargo build && requeue serve --function target/debug/{name}"),
        "sam build && sam deploy --guided".to_owned(),
    ];
    ("has a handler, its tests and its template", steps)
}

struct Language {
    files: &'static [File],
    /// The first properties of the function in the template, and what SAM needs beside them.
    properties: &'static str,
    test: &'static [&'static str],
    serve: &'static str,
    ignored: &'static str,
}

/// In the order of their options.
const LANGUAGES: [Language; 3] = [
    Language {
        files: &[
            ("function/app.py", include_str!("../templates/python-app.py")),
            ("function/requirements.txt", include_str!("../templates/python-requirements.txt")),
            ("test_app.py", include_str!("../templates/python-test_app.py")),
        ],
        properties: "    Properties:
      CodeUri: function
      Handler: app.handler
      Runtime: python3.13
      Architectures: [arm64]
      MemorySize: 256",
        test: &["pip install -r function/requirements.txt pytest", "python -m pytest"],
        serve: "pip install awslambdaric && \
                requeue serve --target -- python3 -m awslambdaric function.app.handler",
        ignored: "__pycache__\n",
    },
    Language {
        files: &[
            ("function/app.ts", include_str!("../templates/node-app.ts")),
            ("function/app.test.ts", include_str!("../templates/node-app.test.ts")),
            ("function/package.json", include_str!("../templates/node-package.json")),
        ],
        properties: "    Metadata:
      BuildMethod: esbuild
      BuildProperties: { Format: esm, OutExtension: [.js=.mjs], Target: es2023, EntryPoints: [app.ts] }
    Properties:
      CodeUri: function
      Handler: app.handler
      Runtime: nodejs22.x
      Architectures: [arm64]
      MemorySize: 256",
        test: &["npm install --prefix function", "npm test --prefix function"],
        serve: "npm install --no-save aws-lambda-ric && npm run build --prefix function && \
                requeue serve --target -- npx aws-lambda-ric function/app.handler",
        ignored: "node_modules\napp.mjs\n",
    },
    Language {
        files: &[
            ("function/pom.xml", include_str!("../templates/java-pom.xml")),
            (
                "function/src/main/java/orders/Handler.java",
                include_str!("../templates/java-Handler.java"),
            ),
            (
                "function/src/test/java/orders/HandlerTest.java",
                include_str!("../templates/java-HandlerTest.java"),
            ),
        ],
        properties: "    Properties:
      CodeUri: function
      Handler: orders.Handler::handleRequest
      Runtime: java21
      Architectures: [arm64]
      MemorySize: 512",
        test: &["mvn --file function/pom.xml test"],
        serve: "mvn --file function/pom.xml package dependency:copy-dependencies && \
                requeue serve --target -- java -cp 'function/target/classes:function/target/dependency/*' \
                com.amazonaws.services.lambda.runtime.api.client.AWSLambda orders.Handler",
        ignored: "",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_checkout_the_project_depends_on_the_published_version() {
        for (files, example) in [(&OWN_HANDLER[..], EXAMPLE), (&HTTP[..], "requeue-lambda")] {
            let (path, text) = files[0];
            let manifest = manifest(text, example, "orders", None);
            let version = format!("version = \"{}\"", env!("CARGO_PKG_VERSION"));
            assert_eq!(manifest.matches(&version).count(), 2, "{path}: {manifest}");
            assert!(manifest.contains("name = \"orders\""), "{manifest}");
            assert!(!manifest.contains("path"), "{manifest}");
        }
    }
}
