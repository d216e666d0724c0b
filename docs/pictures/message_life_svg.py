"""The life of a message whose delay is longer than SQS can hold it: a copy and two hops."""

from pen import Picture

# The times of the receives, and their places.
TIMES = {"0 s": 186, "900 s": 331, "1,800 s": 476, "2,400 s": 573}
QUEUE, FUNCTION = 66, 146


def picture():
    drawn = Picture(
        "message-life", 850, 360,
        "The life of a message with a delay of 2,400 s",
        """At its first receive the message fails, and its delay is 2,400 s. Requeue sends a copy
        that SQS holds for 900 s. At its receive the copy is not due: Requeue calls no handler and
        sends a hop of 900 s, then one of 600 s. After 2,400 s the handler is called again. After a
        success the message is done. After a failure the next copy follows if a retry is left;
        otherwise the message goes to the dead-letter queue.""",
    )
    first, second, third, last = TIMES.values()
    drawn.text(20, 38, "time", "bold")
    drawn.text(20, QUEUE + 22, "SQS queue", "bold", ink="queue")
    drawn.text(20, FUNCTION + 19, "Lambda", "bold", ink="requeue")
    drawn.text(20, FUNCTION + 37, "function", "bold", ink="requeue")
    for name, x in TIMES.items():
        drawn.text(x, 38, name, "small", "middle")

    for start, end, words, kind in [
        (116, first, "original", "queue"),
        (first, second, "copy, 900 s", "retry"),
        (second, third, "hop, 900 s", "retry"),
        (third, last, "hop, 600 s", "retry"),
    ]:
        drawn.box(start + 4, QUEUE, end - start - 8, 34, f"- {words}", kind=kind)
    for x, width, lines, kind in [
        (first, 88, ("attempt 1", "- fails"), "bad"),
        (second, 80, ("not due", "- no call"), "plain"),
        (third, 80, ("not due", "- no call"), "plain"),
        (last, 88, ("attempt 2",), "requeue"),
    ]:
        box = drawn.box(x - width / 2, FUNCTION, width, 48, *lines, kind=kind)
        drawn.arrow((x - 14, QUEUE + 34), (x - 14, FUNCTION))
        if x != last:
            drawn.arrow((x + 14, FUNCTION), (x + 14, QUEUE + 34), kind="retry")
    drawn.arrow(box.right, (646, box.right[1]), head=False)
    for y, lines, kind in [
        (82, ("done", "- after a success"), "good"),
        (145, ("next copy", "- if a retry is left"), "retry"),
        (208, ("dead-letter queue", "- if no retry is left"), "bad"),
    ]:
        outcome = drawn.box(674, y, 162, 50, *lines, kind=kind)
        turn = [] if y == 145 else [(646, outcome.left[1])]
        drawn.arrow((646, box.right[1]), *turn, outcome.left, kind=kind)

    for place, (name, values) in enumerate([
        ("`retryCount`", "0111"),
        ("`hops`", "0012"),
        ("receive count", "1111"),
    ]):
        y = 226 + 20 * place
        drawn.text(20, y, name, "small")
        for x, value in zip(TIMES.values(), values):
            drawn.text(x, y, value, "", "middle")
    words = "The first attempt fails, and its delay is 2,400 s. "
    drawn.text(20, 302, words + "SQS delays a message by at most 900 s,")
    drawn.text(20, 321, "so the rest takes hops. A hop calls no handler and uses no retry.")
    drawn.text(20, 341, "Each copy starts its receive count and its retention anew.", "small")
    return drawn
