#!/usr/bin/env python3
"""The cost of the hot path in counts: instructions of the project's code and its crates, and allocations.

    tests/instructions_test.py            counts, and compares with benches/instructions/counts.json
    tests/instructions_test.py --write    counts, and writes that file

The counts are the same on every x86-64 machine with AVX2, since valgrind shows all of them the same
processor. They leave out libc, since its versions differ. The code calls libc for allocations, which
are counted, and to copy and compare bytes.
"""

import json
import platform
import re
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "benches/instructions/counts.json"
PAGE = ROOT / "docs/project/performance.md"

# Two builds of the same code do not differ. These bounds leave room for the start of the heap.
MOST, LEAST = 1.03, 0.90
ALLOCATING = {"malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc"}


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def compiler():
    return output("rustc", "--version").split()[1]


def build():
    """The program of the cases: the library optimized, the other crates as `cargo test` has built them."""
    profile = "benches/instructions/profile.toml"
    messages = output(
        *("cargo", "build", "--locked", "--example", "instructions", "--config", profile),
        *("--message-format", "json-render-diagnostics"),
    )
    artefacts = (json.loads(line) for line in messages.splitlines())
    return [artefact["executable"] for artefact in artefacts if artefact.get("executable")][-1]


def count(program, case):
    """The cost of one call. The format: https://valgrind.org/docs/manual/cl-format.html."""
    counted = "instructions::counted"
    with tempfile.TemporaryDirectory() as directory:
        profile = Path(directory, "profile")
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={profile}"]
        command += [f"--zero-before={counted}", f"--dump-after={counted}", program, case]
        run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        dump = Path(f"{profile}.1")
        if run.returncode or not dump.exists():
            raise RuntimeError(f"valgrind did not see {counted} return in {case}:\n{run.stdout}")
        lines = dump.read_text().splitlines()

    # The first line with a name also has its number. Later lines have only the number.
    names, at = {}, {}
    instructions, calls = Counter(), Counter()
    of_callee = False
    for line in lines:
        if place := re.match(r"(ob|cob|fn|cfn)=\((\d+)\)(?: (.+))?", line):
            kind, number, name = place.groups()
            at[kind] = names.setdefault((kind[-2:], number), name)
        elif line.startswith("calls="):
            calls[at["cfn"]] += int(line[len("calls=") :].split()[0])
            of_callee = True
        elif re.match(r"[-+*\d]", line):
            if not of_callee:
                instructions[at["ob"]] += int(line.split()[1])
            of_callee = False
    return {"instructions": instructions[program], "allocations": sum(calls[name] for name in ALLOCATING)}


def count_all():
    program = build()
    return {case: count(program, case) for case in output(program).split()}


def write():
    cases = [f"    {json.dumps(case)}: {json.dumps(counts)}" for case, counts in count_all().items()]
    TABLE.write_text(f'{{\n  "rustc": "{compiler()}",\n  "cases": {{\n' + ",\n".join(cases) + "\n  }\n}\n")


def unlike_machine():
    """The reason why counts of this machine would differ, or None."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return f"the counts are of Linux on x86-64, and this is {platform.system()} on {platform.machine()}"
    if "avx2" not in Path("/proc/cpuinfo").read_text().split():
        return "the counts are of processors with AVX2, and this has none"
    return None


def unlike_compiler():
    then, now = json.loads(TABLE.read_text())["rustc"], compiler()
    return None if now == then else f"the counts are of rustc {then}, and this is {now}"


class Instructions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.table = json.loads(TABLE.read_text())["cases"]
        cls.counted = count_all()

    def compare(self, what, is_wrong, remedy):
        """Fails with every case whose count is wrong compared with the table."""
        wrong = []
        for case, counts in self.counted.items():
            now, then = counts[what], self.table.get(case, counts)[what]
            if is_wrong(now, then):
                change = f" ({(now / then - 1) * 100:+.1f} %)" if then else ""
                wrong.append(f"{case}: {now} {what}, {then} in the table{change}")
        if wrong:
            self.fail("\n" + "\n".join(wrong) + f"\n{remedy} by tests/instructions_test.py --write")

    def test_the_table_holds_every_case(self):
        self.assertEqual(list(self.table), list(self.counted), "renew the table by tests/instructions_test.py --write")

    def test_no_case_takes_more_instructions(self):
        self.compare("instructions", lambda now, then: now > then * MOST, "slower; if it must be, raise the figures")

    def test_no_case_takes_far_fewer_instructions(self):
        self.compare("instructions", lambda now, then: now < then * LEAST, "faster; keep it so, and lower the figures")

    def test_no_case_allocates_more(self):
        self.compare("allocations", lambda now, then: now > then, "more allocations; if it must be, raise the figures")

    def test_no_case_allocates_less(self):
        self.compare("allocations", lambda now, then: now < then, "fewer allocations; keep it so, and lower the figures")


class Page(unittest.TestCase):
    """Counts nothing, so it runs on every machine."""

    def test_the_page_has_the_figures_of_the_table(self):
        cases = json.loads(TABLE.read_text())["cases"].values()
        counts = [(f"{case['instructions']:,}", f"{case['allocations']:,}") for case in cases]
        _, section = PAGE.read_text().split("| | instructions | allocations |")
        rows = re.findall(r"^\| .* \| ([\d,]+) \| ([\d,]+) \|$", section.split("\n\n")[0], re.MULTILINE)
        self.assertEqual(rows, counts, "docs/project/performance.md has to show benches/instructions/counts.json, row by row")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        sys.exit(unlike_machine() or write())
    if unlike := unlike_machine() or unlike_compiler():
        print(f"nothing is compared: {unlike}")
        Instructions = unittest.skip(unlike)(Instructions)
    unittest.main()
