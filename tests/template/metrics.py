"""The metrics in the namespace Requeue, read from the function's source."""

import re

from stack import ROOT

SOURCE = (ROOT / "src" / "telemetry" / "metrics.rs").read_text()

CLASSES = {"rate-limit", "quota", "temporary", "non-retryable"}


def read():
    """Each metric with its unit, and whether it is also emitted for each class of failure."""
    text = SOURCE.split("fn metrics(self")[1].split("\n    }\n")[0]
    counts = re.findall(r'\("(\w+)", self\.counts\.', text)
    values = re.findall(r'\("(\w+)", Unit::(\w+), self\.', text)
    of_class = re.search(r"if is_of_class \{ \((\d+), (\d+)\) \}", text)
    most = [int(number) for number in of_class.groups()]
    units = [*((name, "Count") for name in counts), *values]
    by_class = {*counts[: most[0]], *(name for name, _ in values[: most[1]])}
    return {name: (unit, name in by_class) for name, unit in units}


METRICS = read()
