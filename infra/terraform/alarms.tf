# The alarms of the template, by their sections in the runbook, and the topic for e-mail.

locals {
  # The table of all deployments.
  table = jsondecode(file("${path.module}/../deployment.json"))

  # Values of the names in the table and in the dashboard, which stand as in CloudFormation's Fn::Sub.
  values = {
    "AWS::Region"               = data.aws_region.current.region
    "Queue.QueueName"           = aws_sqs_queue.queue.name
    "DeadLetterQueue.QueueName" = aws_sqs_queue.dead_letter_queue.name
    "DeadLetterQueue"           = aws_sqs_queue.dead_letter_queue.id
    "Function"                  = aws_lambda_function.function.function_name
    "Invoked"                   = "${aws_lambda_function.function.function_name}${var.deployment == "" ? "" : ":live"}"
    "Version"                   = aws_lambda_function.function.version
    "LogGroup"                  = aws_cloudwatch_log_group.function.name
    "RunbookUrl"                = var.runbook_url
    "MaxQueueDepth"             = tostring(var.max_queue_depth)
    "MaxMessageAgeSeconds"      = tostring(var.max_message_age_seconds)
    "LongMilliseconds"          = tostring(800 * var.function_timeout)
  }

  # A text is a list of names in braces and of words between them.
  parts = "\\$\\{([^}]+)\\}|([^$]+)"

  alarm_texts = {
    for id, alarm in merge(local.table.alarms, { new-version-errors = local.table.newVersionErrors }) : id => join("", [
      for part in regexall(local.parts, "${alarm.description}${local.table.runbook}${lookup(alarm, "section", id)}") :
      part[0] == null ? part[1] : local.values[part[0]]
    ])
  }

  # An alarm is about one metric, or about the last of its queries.
  single_metrics = { for id, alarm in local.table.alarms : id => [for metric in alarm.metrics : metric if length(alarm.metrics) == 1] }

  # Topics that are notified.
  notified = concat(aws_sns_topic.alarms[*].arn, compact([var.alarm_topic_arn]))
}

# CloudWatch evaluates every alarm each minute over its last period, so a period of 15 minutes delays
# no alarm. A metric without events has no data, hence notBreaching.
resource "aws_cloudwatch_metric_alarm" "alarm" {
  for_each = { for id, alarm in local.table.alarms : id => alarm if var.monitoring != "none" }

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = local.alarm_texts[each.key]
  namespace           = one(local.single_metrics[each.key][*].namespace)
  metric_name         = one(local.single_metrics[each.key][*].name)
  dimensions          = one([for metric in local.single_metrics[each.key] : { for name, value in metric.dimensions : name => local.values[value] }])
  statistic           = one([for metric in local.single_metrics[each.key] : metric.statistic if substr(metric.statistic, 0, 1) != "p"])
  extended_statistic  = one([for metric in local.single_metrics[each.key] : metric.statistic if substr(metric.statistic, 0, 1) == "p"])
  period              = one([for metric in local.single_metrics[each.key] : each.value.period])
  evaluation_periods  = each.value.periods
  comparison_operator = "GreaterThanThreshold"
  threshold           = lookup(local.values, tostring(each.value.threshold), each.value.threshold)
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.notified
  ok_actions          = local.notified
  tags                = var.tags

  # The last query is the value that the alarm compares.
  dynamic "metric_query" {
    for_each = [for query in each.value.metrics : query if length(each.value.metrics) > 1]

    content {
      id          = metric_query.value.id
      expression  = lookup(metric_query.value, "expression", null)
      return_data = metric_query.key == length(each.value.metrics) - 1

      dynamic "metric" {
        for_each = [for query in [metric_query.value] : query if lookup(query, "expression", null) == null]

        content {
          namespace   = metric.value.namespace
          metric_name = metric.value.name
          dimensions  = { for name, value in metric.value.dimensions : name => local.values[value] }
          stat        = metric.value.statistic
          period      = each.value.period
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
