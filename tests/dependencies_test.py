#!/usr/bin/env python3
"""The walls between the packages of the project, and the pins and the renewal of the packages of others.
`deny.toml` has the rules for these."""

import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def linked(package):
    """The crates that a package links, with the features of `cargo build --package` and `cargo lambda build`."""
    command = ["cargo", "tree", "--locked", "--package", package, "--edges", "normal", "--prefix", "none", "--format", "{lib}"]
    return set(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.split())


def features(edges):
    """The features of each crate in a build of the whole workspace: a set of name, version and feature."""
    command = ["cargo", "tree", "--locked", "--edges", edges, "--prefix", "none", "--format", "{p}|{f}"]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    # A crate that was shown already ends with an asterisk.
    crates = dict(line.removesuffix(" (*)").replace(" (proc-macro)", "").split("|") for line in lines if line)
    return {(crate, feature) for crate, names in crates.items() for feature in names.split(",")}


class Walls(unittest.TestCase):
    maxDiff = None

    def test_a_build_compiles_the_dependencies_as_the_tests_do(self):
        built, tested = features("normal,build"), features("normal,build,dev")
        crates = {crate for crate, _ in built}
        missing = {(crate, feature) for crate, feature in tested - built if crate in crates}
        self.assertEqual(missing, set(), "add these to crates/requeue-same-features")

    def test_the_lambda_links_neither_the_embedded_queue_nor_the_command_line(self):
        laptop = {"requeue_embedded", "axum", "clap", "plotters", "quick_xml"}
        self.assertEqual(laptop - linked("requeue-cli"), set(), "the names are no longer those of crates")
        self.assertEqual(laptop & linked("requeue-lambda"), set())

    def test_only_the_command_line_knows_sso_and_programs_for_credentials(self):
        for package, knows in [("requeue-cli", True), ("requeue-lambda", False), ("requeue", False)]:
            command = ["cargo", "tree", "--locked", "--package", package, "--edges", "normal", "--prefix", "none", "--format", "{lib} {f}"]
            tree = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
            for name in ["aws_sdk_sso ", "aws_sdk_ssooidc ", "credentials-process"]:
                self.assertEqual(name in tree, knows, f"{package}: {name}")

    def test_the_library_links_nothing_of_the_other_packages(self):
        others = {"requeue_embedded", "requeue_lambda", "requeue_aws", "clap"}
        self.assertEqual(others - linked("requeue-cli"), set(), "the names are no longer those of crates")
        self.assertEqual(others & linked("requeue"), set())

    def test_the_embedded_queue_knows_nothing_of_retries(self):
        self.assertIn("requeue_sqs", linked("requeue-embedded"))
        self.assertNotIn("requeue", linked("requeue-embedded"))


class Supply(unittest.TestCase):
    def test_a_release_installs_only_packages_with_hashes(self):
        programs = (ROOT / "infra" / "release" / name for name in ("build", "release.py"))
        tools = {tool for program in programs for tool in re.findall(r"\btool ([a-z]+)", program.read_text())}
        self.assertEqual(tools, {"release", "zig"})
        for tool in tools:
            pins = (ROOT / "tests" / f"requirements-{tool}.txt").read_text().replace("\\\n", "")
            for pin in (line for line in pins.splitlines() if not line.startswith("#")):
                self.assertRegex(pin, r"^[\w.-]+==[\w.]+( +--hash=sha256:[0-9a-f]{64})+$")

    def test_all_packages_are_renewed_and_looked_up_every_day(self):
        files = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
        kinds = {"package.json": "npm", "Cargo.lock": "cargo", "requirements-release.txt": "pip"}
        places = {(kinds[path.name], f"/{path.parent}".removesuffix("/.")) for path in map(Path, files) if path.name in kinds}
        renewed = (ROOT / ".github" / "dependabot.yml").read_text()
        entries = re.findall(r"package-ecosystem: (\S+)\n +directories: \[(.+)\]", renewed)
        covered = {(kind, place.rstrip("/")) for kind, of_kind in entries for place in of_kind.split(", ")}
        self.assertEqual(places - covered, set())
        looked_up = (ROOT / ".github" / "workflows" / "advisories.yml").read_text()
        self.assertIn("command: check advisories", looked_up)
        self.assertRegex(looked_up, r'schedule:\n +- cron: "\d+ \d+ \* \* \*"')


if __name__ == "__main__":
    unittest.main()
