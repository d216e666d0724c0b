"""The files of a release. `infra/release/build` starts this program.

Archives are reproducible: the same binary gives the same bytes. Each archive has its licences and those
of its dependencies, and a bill of materials in CycloneDX beside it.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import textwrap
import tomllib
import zipfile
from pathlib import Path

import bill

ROOT = Path(__file__).resolve().parent.parent.parent
LICENCES = ["LICENSE-APACHE", "LICENSE-MIT"]
# The earliest time that a zip can hold, so that no archive depends on the time of its build.
TIME = (1980, 1, 1, 0, 0, 0)
EPOCH = 315532800

# Lambda's name of a processor, Rust's target, and the machine in the head of an ELF file.
PROCESSORS = {
    "arm64": ("aarch64-unknown-linux-gnu", "EM_AARCH64"),
    "x86_64": ("x86_64-unknown-linux-gnu", "EM_X86_64"),
}
# `provided.al2023` has this version of glibc.
LAMBDA_GLIBC = "2.34"
# The command line also runs on older systems: that of RHEL 8, Debian 11 and Ubuntu 20.04.
CLI_GLIBC = "2.28"
# Parts of glibc, and the two compiler libraries that Lambda's image has.
LIBRARIES = re.compile(r"(lib(c|m|dl|pthread|rt|util|gcc_s)|ld-linux-(x86-64|aarch64))\.so\.\d")
PLACEHOLDER = "requeue.invalid"


class Refused(Exception):
    """A release that must not be made."""


def run(*command, **options):
    return subprocess.run([str(word) for word in command], cwd=ROOT, check=True, text=True, **options)


def output(*command):
    return run(*command, stdout=subprocess.PIPE).stdout


class Project:
    """Version and address of the project, from Cargo.toml."""

    def __init__(self):
        package = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
        self.version, self.repository = package["version"], package["repository"]


def built(*path):
    """A file below cargo's target directory."""
    return Path(json.loads(output("cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"))["target_directory"], *path)


def with_zig(*command):
    """Runs cargo with the compilers of tests/requirements-zig.txt, which it installs first."""
    tools = output("bash", "-c", 'source tests/tools.sh && tool zig >&2 && cd "$TOOLS" && pwd').strip()
    run(*command, env={**os.environ, "PATH": f"{tools}/zig/bin:{os.environ['PATH']}"})


# Archives


def zipped(files):
    """A zip of (name, bytes, mode), in this order."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content, mode in files:
            entry = zipfile.ZipInfo(name, TIME)
            entry.create_system = 3  # Unix, so that the mode counts, whichever system packs.
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    return data.getvalue()


def tarred(files):
    """A tar.gz of (name, bytes, mode), in this order."""
    data = io.BytesIO()
    with gzip.GzipFile(fileobj=data, mode="wb", filename="", mtime=EPOCH) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content, mode in files:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), mode, EPOCH
            archive.addfile(entry, io.BytesIO(content))
    return data.getvalue()


def licences(target, package):
    """The texts that must go with a binary."""
    texts = [(name, (ROOT / name).read_bytes(), 0o644) for name in LICENCES]
    return [*texts, ("LICENSES-OF-DEPENDENCIES.txt", bill.licence_texts(package, target).encode(), 0o644)]


# Checks of a binary


def version_number(version):
    return tuple(int(part) for part in version.split("."))


def check_elf(path, machine, glibc):
    """Refuses a program that Amazon Linux 2023, or the oldest supported system, cannot load."""
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as file:
        elf = ELFFile(file)
        if elf["e_machine"] != machine:
            raise Refused(f"{path}: its processor is {elf['e_machine']}; it must be {machine}. Build it for that processor.")
        needed = elf.get_section_by_name(".gnu.version_r")
        versions = [
            auxiliary.name.removeprefix("GLIBC_")
            for _, auxiliaries in (needed.iter_versions() if needed else [])
            for auxiliary in auxiliaries
            if re.fullmatch(r"GLIBC_[\d.]+", auxiliary.name)
        ]
        newest = max(versions, key=version_number, default="0")
        if version_number(newest) > version_number(glibc):
            raise Refused(f"{path}: it needs glibc {newest}; at most {glibc} is allowed. Build it with zig, as this program does.")
        libraries = [tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")]
        strange = [library for library in libraries if not LIBRARIES.fullmatch(library)]
        if strange:
            raise Refused(f"{path}: it needs {', '.join(strange)}, which Lambda does not have. Link them statically.")
    print(f"{path.name}: {machine}, needs glibc {newest} ({', '.join(libraries)})")


def runs_here(target):
    system, machine = platform.system(), platform.machine().replace("arm64", "aarch64")
    return target.startswith(machine) and ("linux" if system == "Linux" else "darwin") in target


def check_start(path, target, arguments, expected):
    """Starts the program without settings, and reads its first words."""
    if not runs_here(target):
        print(f"{path.name}: not started, since this machine is not {target}")
        return
    done = subprocess.run([path, *arguments], env={}, capture_output=True, text=True, timeout=30)
    if expected not in done.stdout + done.stderr:
        raise Refused(f"{path}: it does not start; it must say '{expected}', and said:\n{done.stdout}{done.stderr}")
    print(f"{path.name}: starts")


# The Lambda


def build_lambda(processor):
    target, _ = PROCESSORS[processor]
    run("rustup", "target", "add", target)
    option = {"arm64": "--arm64", "x86_64": "--x86-64"}[processor]
    with_zig("cargo", "lambda", "build", "--locked", "--release", option, "--package", "requeue-lambda")
    return built("lambda", "requeue-lambda", "bootstrap")


def replaced(text, old, new, name):
    if text.count(old) != 1:
        raise Refused(f"{name}: it has {text.count(old)} times the text below; it must have it once. Change infra/release/release.py with it.\n{old}")
    return text.replace(old, new)


def inlined(text):
    """The template in one file. The Serverless Application Repository accepts no transform but SAM's, so none that includes."""
    # A comment above a resource that includes a file explains the include.
    resource = r"^(?:  #.*\n)*(  \w+:\n(?:    .*\n)*?)( +)Fn::Transform: \{ Name: AWS::Include, Parameters: \{ Location: ([\w./-]+) \} \}\n"

    def whole(found):
        before, indentation, path = found.groups()
        lines = (ROOT / path).read_text().splitlines(keepends=True)
        return before + textwrap.indent("".join(line for line in lines if not line.startswith("#")), indentation)

    text = re.sub(resource, whole, text, flags=re.MULTILINE)
    if "Fn::Transform" in text or "AWS::Include" in text:
        raise Refused("template.yaml: a transform that this program cannot put into the template. Change infra/release/release.py with it.")
    return text


def application(project):
    """The metadata that `sam publish` sends to the Serverless Application Repository, for the template's Metadata.

    Not in template.yaml: `requeue new --http` copies that, and `sam deploy` refuses a template that
    names a missing licence.
    """
    return f"""\
  AWS::ServerlessRepo::Application:
    Name: requeue
    Description: >-
      An SQS queue and a function that hands each message to an HTTP endpoint or your existing
      function. It retries each by class of failure, and dead-letters it with a reason. With alarms
      and a dashboard.
    Author: requeue
    # The field takes one identifier. The code is under either licence: Apache-2.0 OR MIT.
    SpdxLicenseId: Apache-2.0
    LicenseUrl: LICENSE-APACHE
    ReadmeUrl: README.md
    Labels: [sqs, lambda, retry, backoff, dead-letter-queue, webhook, http, circuit-breaker]
    HomePageUrl: {project.repository}
    SemanticVersion: {project.version}
    SourceCodeUrl: {project.repository}/tree/v{project.version}
"""


def built_template(project, processor, code):
    """template.yaml in one file with a built function: no build, the zip beside it, and the processor of that zip."""
    text = (ROOT / "template.yaml").read_text()
    metadata = re.search(r"^    Metadata:\n(?:      .*\n)+", text, re.MULTILINE)
    for old, new in [
        (metadata[0] if metadata else "    Metadata:\n", ""),
        ("      CodeUri: .\n", f"      CodeUri: {code}\n"),
        ("\nMetadata:\n", f"\nMetadata:\n{application(project)}"),
    ]:
        text = replaced(text, old, new, "template.yaml")
    text, count = re.subn(
        r"^(      #.*\n)*      Architectures: \[\w+\]\n",
        f"      # The processor of the code in {code}.\n      Architectures: [{processor}]\n",
        text,
        flags=re.MULTILINE,
    )
    if count != 1:
        raise Refused(f"template.yaml: {count} lines begin with '      Architectures: '; there must be one.")
    return inlined(text)


def whole_links(text, repository, tag):
    """Markdown whose links and pictures in the repository are whole, for a page that is elsewhere."""
    text = re.sub(r"(!\[[^]]*\]\()(?![a-z]+:|#)", rf"\g<1>{repository}/raw/{tag}/", text)
    return re.sub(r"\]\((?![a-z]+:|#)", f"]({repository}/blob/{tag}/", text)


def bundle(project, processor, packed, texts):
    """All files that `sam deploy` and `sam publish` need, in one directory."""
    code = "requeue-lambda.zip"
    readme = whole_links((ROOT / "README.md").read_text(), project.repository, f"v{project.version}")
    files = [
        ("template.yaml", built_template(project, processor, code).encode(), 0o644),
        ("samconfig.toml", (ROOT / "samconfig.toml").read_bytes(), 0o644),
        ("README.md", readme.encode(), 0o644),
        (code, packed, 0o644),
        *texts,
    ]
    directory = f"requeue-deploy-{project.version}-{processor}"
    return zipped((f"{directory}/{name}", content, mode) for name, content, mode in files)


def release_lambda(project, out, processor, bootstrap, glibc):
    target, machine = PROCESSORS[processor]
    path = bootstrap or build_lambda(processor)
    check_elf(path, machine, glibc)
    check_start(path, target, [], "REQUEUE_TARGET_URL")
    texts = licences(target, "requeue-lambda")
    packed = zipped([("bootstrap", path.read_bytes(), 0o755), *texts])
    write(out, f"requeue-lambda-{project.version}-{processor}.zip", packed)
    write(out, f"requeue-lambda-{project.version}-{processor}.cdx.json", bill.cyclonedx("requeue-lambda", target, path.read_bytes()).encode())
    write(out, f"requeue-deploy-{project.version}-{processor}.zip", bundle(project, processor, packed, texts))


# The command line


def host():
    return re.search(r"^host: (.+)$", output("rustc", "-vV"), re.MULTILINE)[1]


def build_cli(target):
    options = ("--locked", "--release", "--package", "requeue-cli", "--target")
    if "linux" in target:
        with_zig("cargo", "zigbuild", *options, f"{target}.{CLI_GLIBC}")
    else:
        run("cargo", "build", *options, target)
    return built(target, "release", "requeue")


def check_cli_start(path, target, version):
    check_start(path, target, ["--version"], f"requeue {version}\n")


def release_cli(project, out, binary, glibc):
    target = host()
    path = binary or build_cli(target)
    if "linux" in target:
        machine = next(machine for name, machine in PROCESSORS.values() if name == target)
        check_elf(path, machine, glibc)
    check_cli_start(path, target, project.version)
    name = f"requeue-{project.version}-{target}"
    files = [("requeue", path.read_bytes(), 0o755), *licences(target, "requeue-cli")]
    write(out, f"{name}.tar.gz", tarred((f"{name}/{file}", content, mode) for file, content, mode in files))
    write(out, f"{name}.cdx.json", bill.cyclonedx("requeue-cli", target, path.read_bytes()).encode())


# The release


def write(out, name, content):
    out.mkdir(parents=True, exist_ok=True)
    (out / name).write_bytes(content)
    print(f"{name}: {len(content):,} bytes")


def release_sums(out):
    """In the form of `sha256sum --check` and `shasum --check`."""
    files = sorted(path for path in out.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    if not files:
        raise Refused(f"{out}: no file to sum; build first.")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    write(out, "SHA256SUMS", "".join(lines).encode())


def notes(version, repository, tag, changelog):
    """The text of the release: the version's section of the changelog. Refuses a tag that does not fit."""
    if tag != f"v{version}":
        raise Refused(f"tag {tag}: the version in Cargo.toml is {version}, so the tag must be v{version}. Tag the commit that sets the version.")
    if PLACEHOLDER in repository:
        raise Refused(f"repository = \"{repository}\" in Cargo.toml: a placeholder; put the repository's address there.")
    section = re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)", changelog, re.DOTALL | re.MULTILINE)
    if not section or not section[1].strip():
        raise Refused(f"CHANGELOG.md: no section '## [{version}] - YYYY-MM-DD' with text; rename \"Unreleased\".")
    return whole_links(section[1].strip(), repository, tag) + "\n"


def arguments():
    parser = argparse.ArgumentParser(prog="infra/release/build", description="Makes the files of a release.")
    parser.add_argument("--out", type=Path, default=ROOT / "target" / "release-files", help="directory of the files (default: target/release-files)")
    parts = parser.add_subparsers(dest="part", metavar="PART", title="parts (default: all but notes)")
    function = parts.add_parser("lambda", help="requeue-lambda as a zip, and the bundle for `sam deploy`")
    function.add_argument("processor", choices=PROCESSORS)
    function.add_argument("--bootstrap", type=Path, help="pack this program instead of a new build")
    function.add_argument("--glibc", default=LAMBDA_GLIBC, help=f"refuse a program that needs a later glibc (default: {LAMBDA_GLIBC}, Lambda's)")
    command = parts.add_parser("cli", help="the command line for this machine")
    command.add_argument("--binary", type=Path, help="pack this program instead of a new build")
    command.add_argument("--glibc", default=CLI_GLIBC, help=f"refuse a program that needs a later glibc (default: {CLI_GLIBC})")
    parts.add_parser("sums", help="SHA256SUMS of all files in the directory")
    checked = parts.add_parser("notes", help="check the tag, and print the version's section of CHANGELOG.md")
    checked.add_argument("tag")
    return parser.parse_args()


def main():
    given = arguments()
    project = Project()
    if given.part == "notes":
        print(notes(project.version, project.repository, given.tag, (ROOT / "CHANGELOG.md").read_text()), end="")
    elif given.part == "lambda":
        release_lambda(project, given.out, given.processor, given.bootstrap, given.glibc)
    elif given.part == "cli":
        release_cli(project, given.out, given.binary, given.glibc)
    elif given.part == "sums":
        release_sums(given.out)
    else:
        for processor in PROCESSORS:
            release_lambda(project, given.out, processor, None, LAMBDA_GLIBC)
        release_cli(project, given.out, None, CLI_GLIBC)
        release_sums(given.out)


if __name__ == "__main__":
    try:
        main()
    except Refused as refused:
        sys.exit(f"error: {refused}")
    except subprocess.CalledProcessError as failed:
        sys.exit(f"error: {' '.join(failed.cmd)}: exit status {failed.returncode}")
