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
      for section, alarm in aws_cloudwatch_metric_alarm.alarm : join("", [
        replace(title(replace(section, "-", " ")), " ", ""),
        "Alarm.Arn",
      ]) => alarm.arn
    },
  )

  # The first text has no name. Each other text begins with a name in braces.
  dashboard_texts = split("$", file("${path.module}/../dashboard.json"))
  dashboard_parts = [
    for text in slice(local.dashboard_texts, 1, length(local.dashboard_texts)) : {
      name = regex("[^{}]+", text)
      rest = replace(text, "/^\\{[^}]+\\}/", "")
    }
  ]
}

resource "aws_cloudwatch_dashboard" "dashboard" {
  count = var.monitoring == "alarms-and-dashboard" ? 1 : 0

  # With the region: dashboards of all regions share their names.
  dashboard_name = "${var.name}-${data.aws_region.current.region}"

  dashboard_body = join("", concat(
    [local.dashboard_texts[0]],
    [for part in local.dashboard_parts : "${local.dashboard_values[part.name]}${part.rest}"],
  ))
}
