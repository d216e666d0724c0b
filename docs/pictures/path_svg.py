"""The path of a message: from the producer to success, a retry or the dead-letter queue."""

from pen import Picture


def picture():
    drawn = Picture(
        "path", 850, 266,
        "The path of a message",
        """A producer sends a message to an SQS queue. A Lambda function with Requeue receives it
        and runs the handler. After a success the message is done. After a failure Requeue
        classifies it and decides. For a retry, Requeue sends a copy back to the queue with its
        delay and deletes the original. If the failure is non-retryable or the retries are
        exhausted, Requeue names the message in batchItemFailures, and the redrive policy moves it
        to the dead-letter queue.""",
    )
    producer = drawn.box(12, 106, 82, 48, "producer")
    queue = drawn.box(120, 106, 100, 48, "SQS queue", kind="queue")
    drawn.text(250, 27, "Lambda function with Requeue", "bold", ink="requeue")
    drawn.frame(248, 38, 306, 134, kind="requeue")
    handler = drawn.box(260, 106, 72, 48, "handler", kind="requeue")
    classify = drawn.box(392, 106, 72, 48, "classify", kind="requeue")
    decide = drawn.box(480, 106, 66, 48, "decide", kind="requeue")
    done = drawn.box(708, 36, 128, 52, "done", "- Lambda deletes it", kind="good")
    dead = drawn.box(708, 104, 128, 52, "dead-letter", "queue", kind="bad")

    drawn.arrow(producer.right, queue.left)
    drawn.arrow(queue.right, handler.left)
    drawn.arrow(handler.top, (handler.top[0], 62), done.left, kind="good")
    drawn.text(564, 53, "success", "bold", ink="good")
    drawn.arrow(handler.right, classify.left, kind="bad")
    drawn.text(362, 121, "failure", "small", "middle")
    drawn.arrow(classify.right, decide.left, kind="bad")
    drawn.arrow(decide.right, dead.left, kind="bad")
    drawn.text(564, 102, "non-retryable, or", "small")
    drawn.text(564, 119, "retries exhausted", "small")
    drawn.text(564, 149, "`batchItemFailures`", "small")
    drawn.text(564, 166, "→ redrive policy", "small")
    turns = (decide.bottom[0], 204), (queue.bottom[0], 204)
    drawn.arrow(decide.bottom, *turns, queue.bottom, kind="retry")
    drawn.text(186, 227, "retry:", "bold", ink="retry")
    drawn.text(236, 227, "a copy back to the queue, with `retryCount` + 1 and `DelaySeconds`.")
    drawn.text(236, 247, "SQS confirms the copy, then Requeue deletes the original.", "small")
    return drawn
