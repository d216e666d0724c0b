"""The metrics in the namespace Requeue, read from the function's source."""

import re

from stack import ROOT

SOURCE = (ROOT / "src" / "telemetry" / "metrics.rs").read_text()

CLASSES = {"rate-limit", "quota", "temporary", "non-retryable"}


def named(function):
    """The metrics of one function: counts, and values with their unit."""
    text = SOURCE.split(f"fn {function}(self)")[1].split("metrics(&counts")
    counts = re.findall(r'\("(\w+)", self\.counts\.', text[0])
    values = re.findall(r'\("(\w+)", Unit::(\w+), self\.', text[0] + text[1].split(")]")[0])
    return {**dict.fromkeys(counts, "Count"), **dict(values)}


def read():
    """Each metric with its unit, and whether it is also emitted for each class of failure."""
    of_class = named("of_class")
    return {name: (unit, name in of_class) for name, unit in named("of_queue").items()}


METRICS = read()
