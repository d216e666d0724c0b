"""The metrics in the namespace Requeue, as the function emits them: read from its source."""

import re

from stack import ROOT

SOURCE = (ROOT / "src" / "telemetry" / "metrics.rs").read_text()

UNITS = {"COUNT": "Count", "SECONDS": "Seconds", "MILLISECONDS": "Milliseconds"}

CLASSES = {"rate-limit", "quota", "temporary", "non-retryable"}


def read():
    """Each metric with its unit, and whether it is also emitted for each class of failure."""
    # A line for one class ends here.
    of_all = SOURCE.index("if let Some(class) = self.class")
    values = re.finditer(r'writer\.value\("(\w+)", &(?:Counted\(|Spread\((\w+), )', SOURCE)
    return {value[1]: (UNITS[value[2] or "COUNT"], value.start() < of_all) for value in values}


METRICS = read()
