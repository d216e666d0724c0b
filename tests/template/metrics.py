"""The metrics in the namespace Requeue, as the function emits them."""

from stack import ROOT

SOURCE = ROOT / "src" / "telemetry" / "metrics.rs"

# Each with its unit, and whether it is also emitted for each class of failure.
METRICS = {
    "Received": ("Count", False),
    "Completed": ("Count", False),
    "Failed": ("Count", True),
    "Requeued": ("Count", True),
    "DeadLettered": ("Count", True),
    "Deferred": ("Count", False),
    "Released": ("Count", False),
    "Abandoned": ("Count", False),
    "SendUnconfirmed": ("Count", False),
    "DeleteFailed": ("Count", False),
    "RetryDelay": ("Seconds", True),
    "RetryCount": ("Count", False),
    "TimeToSuccess": ("Milliseconds", False),
    "TimeToSuccessAfterRetry": ("Milliseconds", False),
    "HandlerDuration": ("Milliseconds", False),
    "MessageAge": ("Seconds", False),
}

CLASSES = {"rate-limit", "quota", "temporary", "non-retryable"}


def emitted():
    """The names above; of them those that stand in the source, where there is one."""
    if not SOURCE.exists():
        return set(METRICS)
    source = SOURCE.read_text()
    return {name for name in METRICS if f'"{name}"' in source}
