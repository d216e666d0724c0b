#!/usr/bin/env python3
"""The published packages: files, size and metadata. `tests/publish` also compiles them."""

import json
import re
import subprocess
import tarfile
import textwrap
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# In kilobytes: a quarter more than the size today.
SIZES = {"requeue": 435, "requeue-aws": 25, "requeue-cli": 540, "requeue-embedded": 85, "requeue-lambda": 130, "requeue-sqs": 30}
FILES = re.compile(r"(Cargo\.(toml|toml\.orig|lock)|\.cargo_vcs_info\.json|README\.md|CHANGELOG\.md|LICENSE-(APACHE|MIT)|src/.*\.rs|src/ui/assets/[^/]*|templates/[^/]*)")


def cargo(*command):
    return subprocess.run(["cargo", *command], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def without_macro(code):
    """The code with the enums of the macro `words!` as others stand."""
    words = r"^words! \{\n.*\n((?: {4}.*\n|\n)*)\}$"
    return re.sub(words, lambda found: textwrap.dedent(found[1]), code, flags=re.MULTILINE)


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        metadata = json.loads(cargo("metadata", "--locked", "--no-deps", "--format-version", "1"))
        cls.packages = {package["name"]: package for package in metadata["packages"] if package["publish"] is None}
        unpublished = [package["name"] for package in metadata["packages"] if package["publish"] is not None]
        exclude = [part for name in unpublished for part in ("--exclude", name)]
        # Fetches first: the command below then asks the registry nothing, which would take longest.
        cargo("fetch", "--quiet", "--locked")
        cargo("package", "--quiet", "--locked", "--offline", "--workspace", *exclude, "--no-verify", "--allow-dirty")
        cls.directory = Path(metadata["target_directory"], "package")

    def files(self, package):
        name = f"{package['name']}-{package['version']}"
        with tarfile.open(self.directory / f"{name}.crate") as archive:
            return {member.name.removeprefix(f"{name}/"): archive.extractfile(member).read() for member in archive}

    def test_all_but_the_test_tools_are_published(self):
        self.assertEqual(set(self.packages), set(SIZES))

    def test_a_package_holds_its_sources_and_no_tests(self):
        for name, package in self.packages.items():
            files = self.files(package)
            strays = [file for file in files if not FILES.fullmatch(file) or re.search(r"(^|/)tests(/|\.rs$)", file)]
            self.assertEqual(strays, [], name)
            expected = {"README.md", "LICENSE-APACHE", "LICENSE-MIT"}
            self.assertEqual(expected - set(files), set(), name)
            for file in expected:
                self.assertGreater(len(files[file]), 200, f"{name}: {file}")
            size = (self.directory / f"{name}-{package['version']}.crate").stat().st_size
            self.assertLess(size, SIZES[name] * 1000, name)

    def test_the_command_line_holds_what_it_writes_projects_of(self):
        templates = ROOT / "crates" / "requeue-cli" / "templates"
        expected = {f"templates/{path.name}": path.read_bytes() for path in templates.iterdir()}
        self.assertIn("templates/http.yaml", expected)
        files = self.files(self.packages["requeue-cli"])
        self.assertEqual({file for file in files if file.startswith("templates/")}, set(expected))
        # The templates are links in the repository, and files in the package. A whole diff would take
        # minutes.
        self.assertEqual([file for file, text in expected.items() if files[file] != text], [])

    def test_a_package_says_what_it_is_and_where_it_comes_from(self):
        for name, package in self.packages.items():
            for key in ("description", "license", "repository", "documentation", "readme", "rust_version", "keywords", "categories"):
                self.assertTrue(package[key], f"{name}: {key}")
            self.assertLessEqual(len(package["keywords"]), 5, name)
            self.assertTrue(all(len(keyword) <= 20 for keyword in package["keywords"]), name)
        for key in ("version", "license", "repository", "rust_version"):
            self.assertEqual(len({package[key] for package in self.packages.values()}), 1, key)

    def test_a_public_type_may_grow_or_says_why_not(self):
        """Every `pub` item is public: the lint `unreachable_pub` ensures it."""
        closed = []
        for name in ("requeue", "requeue-embedded", "requeue-lambda", "requeue-sqs"):
            directory = ROOT if name == "requeue" else ROOT / "crates" / name
            for path in directory.glob("src/**/*.rs"):
                if "loopback" in path.parts:  # Hidden.
                    continue
                for block in without_macro(path.read_text()).split("\n\n"):
                    # Documentation and attributes, then the item.
                    above, *item = re.split(r"^pub (?:struct|enum) (?=\w)", block + "\n", maxsplit=1, flags=re.MULTILINE)
                    if not item:
                        continue
                    item = item[0]
                    type_name = re.match(r"\w+", item)[0]
                    can_grow = re.match(r"\w+;", item) or re.search(r"^    (pub \w+:|[A-Z])", item, re.MULTILINE)
                    if can_grow and "#[non_exhaustive]" not in above:
                        closed.append(type_name)
                        self.assertRegex(above, r"new major\s+(///\s+)?version|literal", f"{path.relative_to(ROOT)}: {type_name}")
        self.assertIn("FailureClass", closed)

    def test_a_feature_only_adds(self):
        """A public field or variant behind a feature would break users without the feature."""
        for name in self.packages:
            directory = ROOT if name == "requeue" else ROOT / "crates" / name
            for path in directory.glob("src/**/*.rs"):
                lines = path.read_text().splitlines()
                for line, following in zip(lines, lines[1:]):
                    if "cfg(feature" in line:
                        self.assertRegex(following, r"^(pub )?(use|mod) |^ *fn |^#\[doc\(inline\)\]", f"{path.relative_to(ROOT)}: {following}")


if __name__ == "__main__":
    unittest.main()
