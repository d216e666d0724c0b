#!/usr/bin/env python3
"""The site of `docs/site`: its files, its links, and what a repository's address adds to it."""

import os
import re
import subprocess
import tomllib
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = Path(os.environ.get("REQUEUE_TEST_TOOLS") or ROOT / "target" / "tools") / "docs" / "bin"
REPOSITORY = "https://github.com/example/requeue"


def build(**variables):
    """The directory of the site."""
    command = [ROOT / "docs" / "site", "--no-doc", TOOLS / "mdbook"]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.splitlines()[-1])


class SiteTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        site = build(REQUEUE_SITE_REPOSITORY=REPOSITORY, REQUEUE_SITE_PATH="/requeue/")
        cls.of_repository = {name: (site / name).read_text() for name in ("404.html", "start/worker.html")}
        cls.site = build()

    def test_no_link_is_dead(self):
        pages = [page for kind in ("html", "md") for page in self.site.rglob(f"*.{kind}")]
        # The pages of rustdoc also have the links of other crates' comments.
        pages = [page for page in pages if not page.is_relative_to(self.site / "api") and page.name != "404.html"]
        self.assertGreater(len(pages), 100)
        lychee = [TOOLS / "lychee", "--offline", "--include-fragments", "--no-progress"]
        done = subprocess.run([*lychee, "--root-dir", self.site, *pages], capture_output=True, text=True)
        self.assertEqual(0, done.returncode, done.stdout)

    def test_each_page_is_also_markdown_and_in_the_index_for_language_models(self):
        index = (self.site / "llms.txt").read_text()
        self.assertRegex(index, r"\A# Requeue \d+\.\d+\.\d+\n\n> \S")
        listed = re.findall(r"^- \[[^]]+\]\(([^)]+)\): \S", index, re.MULTILINE)
        pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").glob("*/*.md")}
        self.assertEqual(sorted({*pages, "reference/files.md"}), sorted(listed))
        for page in listed:
            html = page.replace("README.md", "index.html").replace(".md", ".html")
            self.assertTrue((self.site / page).is_file() and (self.site / html).is_file(), page)

    def test_it_has_the_manual_pages_the_rust_api_a_search_and_a_page_for_unknown_addresses(self):
        files = (self.site / "reference" / "files.md").read_text()
        linked = re.findall(r"\]\(\.\./([^)]+)\)", files)
        self.assertIn("api/requeue/index.html", linked)
        self.assertIn("man/requeue-dlq-redrive.1", linked)
        for file in linked:
            self.assertTrue((self.site / file).is_file(), file)
        self.assertTrue(list(self.site.glob("searchindex-*.js")))
        self.assertIn("Page not found", (self.site / "404.html").read_text())
        self.assertIn('<base href="/requeue/">', self.of_repository["404.html"])

    def test_the_title_has_the_version(self):
        version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
        self.assertIn(f"- Requeue {version}</title>", (self.site / "start" / "worker.html").read_text())

    def test_a_picture_has_the_colours_of_both_modes(self):
        for picture in (self.site / "pictures").glob("*.svg"):
            drawn = picture.read_text()
            self.assertTrue("prefers-color-scheme:dark" in drawn or 'fill="#' in drawn, picture.name)
        self.assertFalse(list((self.site / "pictures").glob("*.py")))

    def test_links_to_the_repository_need_its_address(self):
        page = self.of_repository["start/worker.html"]
        self.assertIn(f'href="{REPOSITORY}/edit/main/docs/start/worker.md"', page)
        self.assertRegex(page, f'href="{REPOSITORY}/(tree|blob)/main/examples')
        for page in self.site.glob("*/*.html"):
            if page.parent.name != "api":
                self.assertNotRegex(page.read_text(), r'/edit/main/|href="\.\./\.\./', page.name)


if __name__ == "__main__":
    unittest.main()
