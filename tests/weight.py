#!/usr/bin/env python3
"""Lines of production Rust by room, against the budgets of tests/weight.json.

A room is a crate, or a directory of one that has a budget of its own. Files of tests and inline test
modules do not count; comments and blank lines do. A room may be 2 % over its budget. If it is 2 % or
more below, the budget falls: `tests/weight.py --write`.

A budget rises only in a commit whose body says what the lines buy.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGETS = ROOT / "tests/weight.json"
TOLERANCE = 0.02
INLINE_TESTS = re.compile(r"^#\[cfg\(test\)\]\n(?:#\[[^\n]*\]\n)*mod \w+ \{", re.MULTILINE)


def is_production(path):
    parts = path.split("/")
    is_source = parts[0] == "src" or parts[0] == "crates" and parts[2] == "src"
    is_test = "tests" in parts or parts[-1] == "tests.rs" or parts[1] == "requeue-testkit"
    return is_source and not is_test


def lines_by_file():
    listed = subprocess.run(["git", "ls-files", "*.rs"], cwd=ROOT, check=True, capture_output=True)
    files = filter(is_production, listed.stdout.decode().split())
    code = ((path, (ROOT / path).read_text()) for path in files if (ROOT / path).exists())
    return {path: INLINE_TESTS.split(text)[0].count("\n") for path, text in code}


def room_of(path, budgets):
    """The longest room that holds the file."""
    return max((room for room in budgets if path.startswith(f"{room}/")), key=len)


def main():
    files, budgets = lines_by_file(), json.loads(BUDGETS.read_text())
    weights = dict.fromkeys(budgets, 0)
    for path, lines in files.items():
        weights[room_of(path, budgets)] += lines
    trouble = []
    for room, weight in weights.items():
        budget = budgets[room]
        print(f"{weight:7} of {budget:6}  {room}")
        if weight > budget * (1 + TOLERANCE):
            trouble.append(
                f"{room} has {weight} lines, {weight - budget} more than its budget in "
                "tests/weight.json: make it lighter, or raise the budget in a commit that says what "
                "the lines buy"
            )
        elif weight < budget * (1 - TOLERANCE) and "--write" not in sys.argv:
            trouble.append(
                f"{room} has {weight} lines, {budget - weight} fewer than its budget in "
                "tests/weight.json: lower it with tests/weight.py --write"
            )
    print(f"{sum(weights.values()):7} of {sum(budgets.values()):6}  all")
    if "--write" in sys.argv:
        lower = {room: min(budgets[room], weight) for room, weight in weights.items()}
        BUDGETS.write_text(json.dumps(lower, indent=2) + "\n")
    sys.exit("\n".join(trouble) if trouble else 0)


if __name__ == "__main__":
    main()
