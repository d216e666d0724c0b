# The dashboard of the template, infra/dashboard.json.

locals {
  # Values of the names in the file, which stand as in CloudFormation's Fn::Sub.
  dashboard_values = merge(
    {
      "AWS::Region"               = data.aws_region.current.region
      "Function"                  = aws_lambda_function.function.function_name
      "Queue.QueueName"           = aws_sqs_queue.queue.name
      "DeadLetterQueue.QueueName" = aws_sqs_queue.dead_letter_queue.name
    },
    {
      for section, alarm in aws_cloudwatch_metric_alarm.alarm :
      "${replace(title(replace(section, "-", " ")), " ", "")}Alarm.Arn" => alarm.arn
    },
  )

  # The first part has no name. Each other part begins with a name and a brace.
  dashboard_parts = split("$${", file("${path.module}/../dashboard.json"))
}

resource "aws_cloudwatch_dashboard" "dashboard" {
  count = var.monitoring == "alarms-and-dashboard" ? 1 : 0

  # With the region: dashboards of all regions share their names.
  dashboard_name = "${var.name}-${data.aws_region.current.region}"

  dashboard_body = join("", concat(
    [local.dashboard_parts[0]],
    [
      for part in slice(local.dashboard_parts, 1, length(local.dashboard_parts)) :
      "${local.dashboard_values[split("}", part)[0]]}${replace(part, "/^[^}]+}/", "")}"
    ],
  ))
}
