# The alarms of the template, by their sections in the runbook, and the topic for e-mail.

locals {
  queue             = aws_sqs_queue.queue.name
  dead_letter_queue = aws_sqs_queue.dead_letter_queue.name
  function          = aws_lambda_function.function.function_name
  doctor            = "`requeue doctor --function ${local.function}${var.deployment == "" ? "" : ":live"}`"
  tail              = "`aws logs tail ${aws_cloudwatch_log_group.function.name} --since"

  # Dimensions of the metrics that the function writes.
  own = { Service = local.function, Queue = local.queue }

  # An alarm is about a metric, or about the last of its queries. The reader of a mail has only the
  # description, so it names the queue or function and the first step.
  alarms = {
    dead-letters = {
      description = "Can wait until the morning, unless the number grows. ${local.dead_letter_queue} is not empty: Requeue or SQS gave up messages of ${local.queue}. Nothing handles them until you act, and SQS deletes each after at most 14 days. While one is left, further ones send no mail. First step: `requeue dlq list --queue ${aws_sqs_queue.dead_letter_queue.id}` groups them by class and reason."
      namespace   = "AWS/SQS"
      metric      = "ApproximateNumberOfMessagesVisible"
      dimensions  = { QueueName = local.dead_letter_queue }
      statistic   = "Maximum"
      percentile  = null
      queries     = []
      period      = 60
      periods     = 1
      threshold   = 0
    }

    # Visible messages only. Delayed messages wait for the time of their retry, and more concurrency
    # would not help them. If the endpoint is down, the alarms on error rate and message age fire.
    queue-depth = {
      description = "Look tonight. For five minutes, more than ${var.max_queue_depth} messages of ${local.queue} have waited for ${local.function}. They are late, not lost. First step: ${local.doctor} says whether anything stops it. If nothing does, ${local.tail} 2m` shows whether calls fail. If so, the queue drains once the downstream service recovers. If none fails, raise the maximum concurrency of the event source mapping."
      namespace   = "AWS/SQS"
      metric      = "ApproximateNumberOfMessagesVisible"
      dimensions  = { QueueName = local.queue }
      statistic   = "Minimum"
      percentile  = null
      queries     = []
      period      = 300
      periods     = 1
      threshold   = var.max_queue_depth
    }

    # SQS counts the age from the last send, so its metric stays low for a message with many copies.
    # MessageAge counts from the first send, but only for received messages. Together the two miss no
    # message: Requeue receives a waiting message every 15 minutes.
    message-age = {
      description = "Can wait until the morning, if messages may be late. A message of ${local.queue} is older than ${var.max_message_age_seconds} seconds: calls for it fail, or Lambda has not fetched it yet. It is late, not lost. First step: ${local.doctor} says whether anything stops the function. If nothing does, ${local.tail} 2m` shows class and reason of each failure."
      namespace   = null
      metric      = null
      dimensions  = null
      statistic   = null
      percentile  = null
      queries = [
        { id = "age", namespace = "Requeue", metric = "MessageAge", dimensions = local.own, statistic = "Maximum", expression = null },
        { id = "waiting", namespace = "AWS/SQS", metric = "ApproximateAgeOfOldestMessage", dimensions = { QueueName = local.queue }, statistic = "Maximum", expression = null },
        { id = "oldest", namespace = null, metric = null, dimensions = null, statistic = null, expression = "MAX([FILL(age, 0), FILL(waiting, 0)])" },
      ]
      period    = null
      periods   = 1
      threshold = var.max_message_age_seconds
    }

    # At least 10 calls, so that one failure of two raises no alarm. An open circuit lets one call
    # through every 30 seconds, which makes more than ten in 15 minutes.
    error-rate = {
      description = "Act tonight. More than 30 % of the handler calls of ${local.function} failed, of at least 10 in 15 minutes. Requeue retries their messages; non-retryable ones go to ${local.dead_letter_queue} after one call. First step: ${local.tail} 2m` shows class and reason of each failure. If many are non-retryable, stop all calls (disable the event source mapping). Otherwise look at the downstream service."
      namespace   = null
      metric      = null
      dimensions  = null
      statistic   = null
      percentile  = null
      queries = [
        { id = "failed", namespace = "Requeue", metric = "Failed", dimensions = local.own, statistic = "Sum", expression = null },
        { id = "completed", namespace = "Requeue", metric = "Completed", dimensions = local.own, statistic = "Sum", expression = null },
        { id = "handled", namespace = null, metric = null, dimensions = null, statistic = null, expression = "SUM([FILL(failed, 0), FILL(completed, 0)])" },
        { id = "rate", namespace = null, metric = null, dimensions = null, statistic = null, expression = "IF(handled >= 10, 100 * FILL(failed, 0) / handled, 0)" },
      ]
      period    = null
      periods   = 1
      threshold = 30
    }

    # Twice 15 minutes, since a batch may last 15 minutes, and Lambda measures it when it ends.
    function-duration = {
      description = "Can wait until the morning. For half an hour, the slowest invocations of ${local.function} have taken more than 80 % of its timeout. Near the timeout Requeue cancels calls that still run and retries their messages, so work is repeated; no message is lost. First step: ${local.doctor} says whether the messages of an invocation fit into the timeout. If not, lower the batch size or raise the message concurrency or the timeout."
      namespace   = "AWS/Lambda"
      metric      = "Duration"
      dimensions  = { FunctionName = local.function }
      statistic   = null
      percentile  = "p99"
      queries     = []
      period      = 900
      periods     = 2
      threshold   = 800 * var.function_timeout
    }

    function-errors = {
      description = "Act tonight. Invocations of ${local.function} failed as a whole: it did not start, timed out or crashed. SQS delivers their messages again, and after a few such failures moves them to ${local.dead_letter_queue}: by default in about half an hour. First step: ${local.tail} 10m` shows the error. If all invocations fail, stop all calls (disable the event source mapping)."
      namespace   = "AWS/Lambda"
      metric      = "Errors"
      dimensions  = { FunctionName = local.function }
      statistic   = "Sum"
      percentile  = null
      queries     = []
      period      = 300
      periods     = 1
      threshold   = 0
    }

    throttles = {
      description = "Act tonight. Lambda throttled ${local.function}: the account or the function has no concurrency left. SQS delivers the messages again. Throttles may use up their deliveries, and then SQS moves them to ${local.dead_letter_queue}: by default in about half an hour. First step: ${local.doctor} compares the reserved concurrency with the event source mapping."
      namespace   = "AWS/Lambda"
      metric      = "Throttles"
      dimensions  = { FunctionName = local.function }
      statistic   = "Sum"
      percentile  = null
      queries     = []
      period      = 300
      periods     = 1
      threshold   = 0
    }

    send-unconfirmed = {
      description = "Act at once. SQS did not confirm retries that ${local.function} sent. Their messages stay in the queue, but a few more receives move them to ${local.dead_letter_queue}: by default in about 20 minutes. First step: ${local.tail} 10m` shows a code beside settlement unconfirmed. If there are many, disable the event source mapping. ${local.doctor} names missing permissions."
      namespace   = "Requeue"
      metric      = "SendUnconfirmed"
      dimensions  = local.own
      statistic   = "Sum"
      percentile  = null
      queries     = []
      period      = 300
      periods     = 1
      threshold   = 0
    }
  }

  # Topics that are notified.
  notified = concat(aws_sns_topic.alarms[*].arn, compact([var.alarm_topic_arn]))
}

# CloudWatch evaluates every alarm each minute over its last period, so a period of 15 minutes delays
# no alarm. A metric without events has no data, hence notBreaching.
resource "aws_cloudwatch_metric_alarm" "alarm" {
  for_each = { for section, alarm in local.alarms : section => alarm if var.monitoring != "none" }

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = "${each.value.description} Runbook (your copy, or in Requeue's repository): ${var.runbook_url}#${each.key}"
  namespace           = each.value.namespace
  metric_name         = each.value.metric
  dimensions          = each.value.dimensions
  statistic           = each.value.statistic
  extended_statistic  = each.value.percentile
  period              = each.value.period
  evaluation_periods  = each.value.periods
  comparison_operator = "GreaterThanThreshold"
  threshold           = each.value.threshold
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.notified
  ok_actions          = local.notified
  tags                = var.tags

  # The last query is the value that the alarm compares.
  dynamic "metric_query" {
    for_each = each.value.queries

    content {
      id          = metric_query.value.id
      expression  = metric_query.value.expression
      return_data = metric_query.key == length(each.value.queries) - 1

      dynamic "metric" {
        for_each = [for query in [metric_query.value] : query if query.metric != null]

        content {
          namespace   = metric.value.namespace
          metric_name = metric.value.metric
          dimensions  = metric.value.dimensions
          stat        = metric.value.statistic
          period      = 900
        }
      }
    }
  }
}

# Not encrypted with KMS: an alarm holds names and numbers, nothing of a message. CloudWatch cannot
# publish to a topic under the key that AWS manages for SNS. Under your own key it can if the key's
# policy allows it, and a mistake there would silence the alarms.
resource "aws_sns_topic" "alarms" {
  # checkov:skip=CKV_AWS_26: explained above
  count = var.alarm_email == "" ? 0 : 1
  name  = "${var.name}-alarms"
  tags  = var.tags
}

resource "aws_sns_topic_policy" "alarms" {
  count = var.alarm_email == "" ? 0 : 1
  arn   = aws_sns_topic.alarms[0].arn

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(
      [
        {
          Effect    = "Allow"
          Principal = { Service = "cloudwatch.amazonaws.com" }
          Action    = "sns:Publish"
          Resource  = aws_sns_topic.alarms[0].arn
          Condition = { StringEquals = { "aws:SourceAccount" = data.aws_caller_identity.current.account_id } }
        }
      ],
      [
        for tls in [true] : {
          Effect    = "Deny"
          Principal = { AWS = "*" }
          Action    = "sns:Publish"
          Resource  = aws_sns_topic.alarms[0].arn
          Condition = { Bool = { "aws:SecureTransport" = "false" } }
        } if var.enforce_tls
      ],
    )
  })
}

resource "aws_sns_topic_subscription" "alarm_email" {
  count     = var.alarm_email == "" ? 0 : 1
  topic_arn = aws_sns_topic.alarms[0].arn
  protocol  = "email"
  endpoint  = var.alarm_email
}
