"""The deployment: the resources that template.yaml makes, and those around them."""

from pen import Picture


def picture():
    drawn = Picture(
        "deployment", 850, 452,
        "The resources of template.yaml",
        """A producer, and optionally an SNS topic, send messages to an SQS queue. An event source
        mapping invokes the Lambda function with them. The function has a role, sends each message
        to an HTTPS target, and reads optional secrets of Secrets Manager or Parameter Store at its
        start. It sends copies to the queue for retries. The redrive policy moves dead letters to
        the dead-letter queue. The function writes log lines and metrics to a log group. Eight
        alarms and a dashboard read the metrics. Alarms go to an optional topic.""",
    )
    drawn.frame(142, 18, 530, 386)
    drawn.text(158, 42, "stack of `template.yaml`", "bold")

    producer = drawn.box(12, 104, 108, 52, "producer")
    topic = drawn.box(
        12, 196, 108, 68, "SNS topic", "- subscription,", "- optional", dashed=True
    )
    queue = drawn.box(160, 104, 124, 52, "SQS queue", kind="queue")
    dead = drawn.box(160, 204, 124, 52, "dead-letter", "queue", kind="bad")
    mapping = drawn.box(322, 104, 124, 52, "event source", "mapping")
    role = drawn.box(322, 204, 124, 52, "role", "- permissions")
    function = drawn.box(490, 104, 164, 52, "Lambda function", "- requeue-lambda", kind="requeue")
    target = drawn.box(702, 104, 136, 52, "HTTPS target", kind="good")
    secrets = drawn.box(
        702, 187, 136, 86, "secrets", "- Secrets Manager,", "- Parameter Store:",
        "- read at the start", dashed=True,
    )
    logs = drawn.box(490, 204, 164, 52, "log group", "- log lines, metrics")
    metrics = drawn.box(
        490, 290, 164, 100, "metrics", "- namespace `Requeue`,", "- and those of SQS",
        "- and Lambda",
    )
    alarms = drawn.box(322, 290, 124, 44, "eight alarms")
    dashboard = drawn.box(322, 346, 124, 44, "dashboard")
    alarm_topic = drawn.box(160, 286, 124, 52, "alarm topic", "- optional", dashed=True)
    mail = drawn.box(12, 286, 108, 52, "e-mail", "- optional", dashed=True)

    drawn.arrow(producer.right, queue.left)
    drawn.arrow(topic.right, (131, topic.right[1]), (131, 144), (160, 144), dashed=True)
    drawn.arrow(queue.right, mapping.left)
    drawn.arrow(mapping.right, function.left)
    drawn.arrow(function.right, target.left)
    turns = (function.top[0], 76), (queue.top[0], 76)
    drawn.arrow(function.top, *turns, queue.top, kind="retry")
    drawn.text(400, 69, "retry: a copy", "small", "middle")
    drawn.arrow(queue.bottom, dead.top, kind="bad")
    drawn.text(232, 184, "redrive policy", "small")
    drawn.arrow(role.right, (468, role.right[1]), (468, 144), (490, 144))
    drawn.arrow(secrets.left, (687, secrets.left[1]), (687, 144), (654, 144), dashed=True)
    drawn.arrow(function.bottom, logs.top)
    drawn.arrow(logs.bottom, metrics.top)
    for reader in alarms, dashboard:
        drawn.arrow((490, reader.right[1]), reader.right)
    drawn.arrow(alarms.left, alarm_topic.right, dashed=True)
    drawn.arrow(alarm_topic.left, mail.right, dashed=True)
    drawn.text(580, 277, "EMF", "small")
    drawn.text(20, 432, "Dashed: only if a parameter asks for it.", "small")
    return drawn
