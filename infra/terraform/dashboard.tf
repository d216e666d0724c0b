# The dashboard of the template, infra/dashboard.json.

locals {
  # By the alarms' ids in the template.
  alarm_arns = {
    for id, alarm in aws_cloudwatch_metric_alarm.alarm : join("", [replace(title(replace(id, "-", " ")), " ", ""), "Alarm.Arn"]) => alarm.arn
  }
}

resource "aws_cloudwatch_dashboard" "dashboard" {
  count = var.monitoring == "alarms-and-dashboard" ? 1 : 0

  # With the region: dashboards of all regions share their names.
  dashboard_name = "${var.name}-${data.aws_region.current.region}"

  dashboard_body = join("", [
    for part in regexall(local.parts, file("${path.module}/../dashboard.json")) :
    part[0] == null ? part[1] : merge(local.values, local.alarm_arns)[part[0]]
  ])
}
