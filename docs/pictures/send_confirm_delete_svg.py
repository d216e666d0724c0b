"""How Requeue settles a retry: send, confirm, delete; and the state after a crash at each point."""

from pen import Picture

LAMBDA, REQUEUE, SQS = 50, 156, 336
# Of the right half: the number of a crash, the two states, and the words.
NUMBER, ORIGINAL, COPY, WORDS = 384, 404, 484, 570


def picture():
    drawn = Picture(
        "send-confirm-delete", 850, 436,
        "Send, confirm, delete: a retry, and four points of a crash",
        """For a retry, Requeue sends the copy by SendMessageBatch. SQS confirms the copy by its id.
        Requeue then deletes the original by DeleteMessageBatch, and responds to Lambda. Crash 1,
        before SQS has the copy: the original is left. Crash 2, before the confirmation arrives,
        and crash 3, before SQS deletes the original: original and copy are left, a duplicate.
        Crash 4, after the delete: the copy is left. Nothing is lost at any of them.""",
    )
    for x, width, name, kind in [
        (LAMBDA, 76, "Lambda", "plain"),
        (REQUEUE, 88, "Requeue", "requeue"),
        (SQS, 70, "SQS", "queue"),
    ]:
        actor = drawn.box(x - width / 2, 14, width, 34, name, kind=kind)
        drawn.arrow(actor.bottom, (x, 370), kind=kind, dashed=True, head=False)

    drawn.arrow((LAMBDA, 76), (REQUEUE, 76))
    drawn.text((LAMBDA + REQUEUE) / 2, 69, "batch", "small", "middle")
    for y, words, is_call in [
        (138, "`SendMessageBatch`", True),
        (206, "confirmed by id", False),
        (274, "`DeleteMessageBatch`", True),
        (342, "deleted", False),
    ]:
        ends = [(REQUEUE, y), (SQS, y)] if is_call else [(SQS, y), (REQUEUE, y)]
        kind = "requeue" if is_call else "queue"
        drawn.arrow(*ends, kind=kind)
        drawn.text((REQUEUE + SQS) / 2, y - 7, words, "" if is_call else "small", "middle")
    drawn.arrow((REQUEUE, 362), (LAMBDA, 362))
    drawn.text((LAMBDA + REQUEUE) / 2, 355, "response", "small", "middle")

    drawn.text(NUMBER, 70, "crash", "bold", "middle", ink="bad")
    drawn.text((ORIGINAL + COPY + 74) / 2, 70, "left in SQS", "bold", "middle")
    drawn.text(WORDS, 70, "result", "bold")
    for place, (original, copy, result, detail) in enumerate([
        ("original", None, "nothing lost, no duplicate", "The original becomes visible again."),
        ("original", "copy", "nothing lost, a duplicate", "Requeue got no confirmation."),
        ("original", "copy", "nothing lost, a duplicate", "Both have one idempotency key."),
        (None, "copy", "nothing lost, no duplicate", "The copy waits for its delay."),
    ]):
        y = 104 + 68 * place
        drawn.mark(REQUEUE, y, str(place + 1), "bad")
        drawn.mark(NUMBER, y, str(place + 1), "bad")
        for x, state, kind, gone in [
            (ORIGINAL, original, "queue", "deleted"),
            (COPY, copy, "retry", "no copy"),
        ]:
            kind = kind if state else "plain"
            drawn.box(x, y - 15, 74, 30, f"- {state or gone}", kind=kind, dashed=not state)
        drawn.text(WORDS, y - 4, result, "bold", ink="good" if "no dup" in result else "retry")
        drawn.text(WORDS, y + 14, detail, "small")
    left = NUMBER - 11
    drawn.text(left, 364, "Messages of the batch that are not deleted become visible", "small")
    drawn.text(left, 382, "again when their visibility timeout is over.", "small")
    last = "If SQS does not confirm a copy, Requeue keeps the original and names it in "
    drawn.text(20, 416, last + "`batchItemFailures`.")
    return drawn
