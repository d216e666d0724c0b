"""Pause and circuit breaker of one scope: the states, and the reasons to change between them."""

from pen import Picture


def picture():
    drawn = Picture(
        "pause-and-circuit", 850, 446,
        "Pause and circuit breaker of one scope",
        """While the circuit is closed, Requeue handles messages. A rate-limit or quota failure
        that names a delay starts a pause. When the pause is over, one message probes: if the
        service names no delay again, the pause ends. Five failures in a row of five messages open
        the circuit. Three messages probe after 1 s, and if they fail after 3, 9, 27 and then every
        30 s. The first success closes the circuit.""",
    )
    closed = drawn.box(
        14, 158, 136, 76, "closed", "- Requeue handles", "- messages", kind="good"
    )
    paused = drawn.box(
        330, 30, 150, 76, "paused", "- Requeue defers", "- messages", kind="retry"
    )
    probing = drawn.box(
        676, 30, 160, 76, "probing", "- one message probes,", "- others are deferred", kind="queue"
    )
    opened = drawn.box(
        330, 286, 150, 76, "open", "- Requeue defers", "- messages", kind="bad"
    )
    half = drawn.box(
        676, 286, 160, 76, "half-open", "- probes are handled,", "- others are deferred",
        kind="queue",
    )
    middle, start, end = closed.top[0], closed.right[0], probing.left[0]
    between = (paused.right[0] + end) / 2

    drawn.text(96, 98, "pause", "title", ink="retry")
    drawn.text(96, 289, "circuit breaker", "title", ink="bad")

    drawn.arrow(closed.top, (middle, paused.left[1]), paused.left, kind="retry")
    drawn.text(206, 43, "`rate-limit` or `quota` failure", "small", "middle")
    drawn.text(206, 60, "that names a delay", "small", "middle")
    drawn.arrow((paused.right[0], 54), (end, 54), kind="queue")
    drawn.text(between, 30, "after the named delay,", "small", "middle")
    drawn.text(between, 47, "at most 60 s", "small", "middle")
    drawn.arrow((end, 84), (paused.right[0], 84), kind="retry")
    drawn.text(between, 101, "the service names", "small", "middle")
    drawn.text(between, 118, "a delay again", "small", "middle")
    drawn.arrow(probing.bottom, (probing.bottom[0], 182), (start, 182), kind="good")
    drawn.text(405, 174, "the service names no delay", "small", "middle")

    drawn.arrow(closed.bottom, (middle, opened.left[1]), opened.left, kind="bad")
    drawn.text(206, 316, "5 failures in a row", "small", "middle")
    drawn.text(206, 341, "of 5 messages: timeouts,", "small", "middle")
    drawn.text(206, 358, "5xx, connection trouble", "small", "middle")
    drawn.arrow((opened.right[0], 310), (end, 310), kind="queue")
    drawn.text(between, 286, "after 1, 3, 9, 27 s: 3 probes", "small", "middle")
    drawn.text(between, 303, "then every 30 s: 1 probe", "small", "middle")
    drawn.arrow((end, 340), (opened.right[0], 340), kind="bad")
    drawn.text(between, 357, "all probes failed", "small", "middle")
    drawn.arrow(half.top, (half.top[0], 210), (start, 210), kind="good")
    drawn.text(405, 228, "a probe succeeds", "small", "middle")

    for place, words in enumerate([
        "Each scope has its own state in each execution environment. In a copy, a deferral uses no "
        "retry.",
        "Requeue handles a message in any state after 100 deferrals in a row, on its second "
        "receive,",
        "and when its age is used up. The numbers are defaults, for a service that responded "
        "before.",
    ]):
        drawn.text(20, 392 + 19 * place, words, "small")
    return drawn
