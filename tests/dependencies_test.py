#!/usr/bin/env python3
"""What the dependencies must keep: permissive licences, one source, one TLS stack with one provider, and the walls between our packages."""

import json
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PERMISSIVE = {"MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "ISC", "Unicode-3.0", "Unlicense", "Zlib"}
# The AWS SDK's legacy stack (its feature `rustls`), and TLS by C libraries: larger, slower to start, or twice the same thing.
BANNED = [
    ("hyper", "0."),
    ("h2", "0.3."),
    ("http", "0.2."),
    ("rustls", "0.21."),
    ("aws-lc-rs", ""),
    ("aws-lc-sys", ""),
    ("native-tls", ""),
    ("openssl-sys", ""),
]


def permissive(expression):
    """Whether a licence expression can be met with PERMISSIVE licences; AND binds closer than OR."""
    expression = expression.replace("/", " OR ")
    # No expression nests deeper; a group of alternatives stands for its first permissive one.
    group = re.search(r"\(([^()]*)\)", expression)
    if group:
        chosen = next((term for term in group[1].split(" OR ") if permissive(term)), "none")
        return permissive(expression[: group.start()] + chosen.strip() + expression[group.end() :])
    terms = (term.split(" AND ") for term in expression.split(" OR "))
    return any(all(licence.strip().split(" WITH ")[0] in PERMISSIVE for licence in term) for term in terms)


class Dependencies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        command = ["cargo", "metadata", "--locked", "--all-features", "--format-version", "1"]
        metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
        cls.foreign = [package for package in metadata["packages"] if package["source"]]

    def test_every_licence_is_permissive(self):
        refused = {package["name"]: package["license"] for package in self.foreign if not permissive(package["license"] or "none")}
        self.assertEqual(refused, {})

    def test_every_crate_comes_from_the_registry(self):
        sources = {package["source"] for package in self.foreign}
        self.assertEqual([source.split("+")[0] for source in sources], ["registry"], sources)

    def test_there_is_one_tls_stack(self):
        found = [
            f"{package['name']} {package['version']}"
            for package in self.foreign
            for name, version in BANNED
            if package["name"] == name and package["version"].startswith(version)
        ]
        self.assertEqual(found, [])


def linked(package):
    """The names of all crates that a package links, as `cargo build --package` and `cargo lambda build` select features."""
    command = ["cargo", "tree", "--locked", "--package", package, "--edges", "normal", "--prefix", "none", "--format", "{lib}"]
    return set(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.split())


class Walls(unittest.TestCase):
    def test_the_lambda_links_neither_the_embedded_queue_nor_the_command_line(self):
        # The embedded queue also by a crate that nothing else needs.
        laptop = {"requeue_embedded", "md5", "clap", "comfy_table", "plotters", "roxmltree"}
        self.assertEqual(laptop - linked("requeue-cli"), set(), "the names are no longer those of crates")
        self.assertEqual(laptop & linked("requeue-lambda"), set())

    def test_the_library_links_nothing_of_the_other_packages(self):
        others = {"requeue_embedded", "requeue_lambda", "requeue_aws", "clap"}
        self.assertEqual(others - linked("requeue-cli"), set(), "the names are no longer those of crates")
        self.assertEqual(others & linked("requeue"), set())

    def test_the_embedded_queue_knows_nothing_of_retries(self):
        self.assertIn("requeue_sqs", linked("requeue-embedded"))
        self.assertNotIn("requeue", linked("requeue-embedded"))


if __name__ == "__main__":
    unittest.main()
