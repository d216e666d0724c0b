# A gradual deployment, if var.deployment names one: each apply publishes a version, and CodeDeploy
# moves the alias to it. Terraform leaves the alias where CodeDeploy moved it.

resource "aws_lambda_alias" "live" {
  count            = var.deployment == "" ? 0 : 1
  name             = "live"
  description      = "The version that handles the queue's messages. CodeDeploy moves it."
  function_name    = aws_lambda_function.function.function_name
  function_version = aws_lambda_function.function.version

  # Without an alias any longer, the event source mapping must leave it before its destruction.
  lifecycle {
    create_before_destroy = true
    ignore_changes        = [function_version, routing_config]
  }
}

resource "aws_codedeploy_app" "function" {
  count            = var.deployment == "" ? 0 : 1
  name             = var.name
  compute_platform = "Lambda"
  tags             = var.tags
}

resource "aws_codedeploy_deployment_group" "live" {
  count                  = var.deployment == "" ? 0 : 1
  app_name               = aws_codedeploy_app.function[0].name
  deployment_group_name  = "live"
  deployment_config_name = "CodeDeployDefault.Lambda${var.deployment}"
  service_role_arn       = aws_iam_role.deployment[0].arn
  tags                   = var.tags

  deployment_style {
    deployment_type   = "BLUE_GREEN"
    deployment_option = "WITH_TRAFFIC_CONTROL"
  }

  auto_rollback_configuration {
    enabled = true
    events  = ["DEPLOYMENT_FAILURE", "DEPLOYMENT_STOP_ON_ALARM"]
  }

  alarm_configuration {
    enabled = true
    alarms  = [aws_cloudwatch_metric_alarm.new_version_errors[0].alarm_name]
  }

  depends_on = [aws_iam_role_policy_attachment.deployment]
}

# The alarm that rolls back. It watches the new version only: CodeDeploy stops a deployment if an alarm
# is on, so an alarm on the version before would stop its repair too. Lambda has this metric while the
# alias points to two versions.
resource "aws_cloudwatch_metric_alarm" "new_version_errors" {
  count               = var.deployment == "" ? 0 : 1
  alarm_name          = "${var.name}-new-version-errors"
  alarm_description   = local.alarm_texts.new-version-errors
  namespace           = local.table.newVersionErrors.metrics[0].namespace
  metric_name         = local.table.newVersionErrors.metrics[0].name
  dimensions          = { for name, value in local.table.newVersionErrors.metrics[0].dimensions : name => local.values[value] }
  statistic           = local.table.newVersionErrors.metrics[0].statistic
  period              = local.table.newVersionErrors.period
  evaluation_periods  = local.table.newVersionErrors.periods
  comparison_operator = "GreaterThanThreshold"
  threshold           = local.table.newVersionErrors.threshold
  treat_missing_data  = "notBreaching"
  tags                = var.tags
}

resource "aws_iam_role" "deployment" {
  count                = var.deployment == "" ? 0 : 1
  name_prefix          = "${substr(var.name, 0, 30)}-deploy-"
  path                 = var.role_path
  permissions_boundary = var.permissions_boundary_arn == "" ? null : var.permissions_boundary_arn
  tags                 = var.tags

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Effect    = "Allow"
        Principal = { Service = "codedeploy.amazonaws.com" }
        Action    = "sts:AssumeRole"
      }
    ]
  })
}

resource "aws_iam_role_policy_attachment" "deployment" {
  count      = var.deployment == "" ? 0 : 1
  role       = aws_iam_role.deployment[0].name
  policy_arn = "arn:${data.aws_partition.current.partition}:iam::aws:policy/service-role/AWSCodeDeployRoleForLambdaLimited"
}

locals {
  # The move of the alias, unless it points to the newest version: CodeDeploy refuses a move to the
  # version where the alias already is.
  moves = [
    for alias in aws_lambda_alias.live : jsonencode({
      (var.name) = {
        Type = "AWS::Lambda::Function"
        Properties = {
          Name           = var.name
          Alias          = alias.name
          CurrentVersion = alias.function_version
          TargetVersion  = aws_lambda_function.function.version
        }
      }
    }) if alias.function_version != aws_lambda_function.function.version
  ]

  deployments = [
    for move in local.moves : jsonencode({
      applicationName     = var.name
      deploymentGroupName = "live"
      revision = {
        revisionType = "AppSpecContent"
        # As text, since jsonencode would write the version as 0.
        appSpecContent = { content = "{\"version\":0.0,\"Resources\":[${move}]}" }
      }
    })
  ]
}
