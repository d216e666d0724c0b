# Plans of the module by Terraform 1.11 or later, with the provider's schema and without AWS:
#
#     terraform -chdir=infra/terraform init && terraform -chdir=infra/terraform test
#
# infra/cdk/test/terraform.test.ts compares the resources with those of the template.

mock_provider "aws" {
  override_during = plan

  mock_data "aws_region" {
    defaults = { region = "eu-west-1" }
  }
  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }
  mock_resource "aws_sqs_queue" {
    defaults = { id = "https://sqs.eu-west-1.amazonaws.com/123456789012/requeue", arn = "arn:aws:sqs:eu-west-1:123456789012:requeue" }
  }
  mock_resource "aws_dynamodb_table" {
    defaults = { arn = "arn:aws:dynamodb:eu-west-1:123456789012:table/requeue-table" }
  }
  mock_resource "aws_iam_role" {
    defaults = { id = "requeue", name = "requeue", arn = "arn:aws:iam::123456789012:role/requeue" }
  }
  mock_resource "aws_lambda_function" {
    defaults = { arn = "arn:aws:lambda:eu-west-1:123456789012:function:requeue", version = "2" }
  }
  mock_resource "aws_lambda_alias" {
    defaults = { arn = "arn:aws:lambda:eu-west-1:123456789012:function:requeue:live" }
  }
  mock_resource "aws_cloudwatch_log_group" {
    defaults = { arn = "arn:aws:logs:eu-west-1:123456789012:log-group:/aws/lambda/requeue" }
  }
  mock_resource "aws_cloudwatch_metric_alarm" {
    defaults = { arn = "arn:aws:cloudwatch:eu-west-1:123456789012:alarm:requeue" }
  }
  mock_resource "aws_sns_topic" {
    defaults = { arn = "arn:aws:sns:eu-west-1:123456789012:requeue-alarms" }
  }
}

variables {
  name       = "requeue"
  target_url = "https://api.example.com/orders"
  package    = "versions.tf" # any file, since nothing uploads it
}

run "defaults" {
  command = plan

  assert {
    condition     = length(aws_cloudwatch_metric_alarm.alarm) == 8 && length(jsondecode(aws_cloudwatch_dashboard.dashboard[0].dashboard_body).widgets) > 0
    error_message = "There must be eight alarms, and a dashboard in JSON."
  }
  assert {
    condition     = aws_cloudwatch_metric_alarm.alarm["queue-depth"].threshold == 5000 && aws_cloudwatch_metric_alarm.alarm["function-duration"].threshold == 48000
    error_message = "Thresholds must follow their variables."
  }
  assert {
    condition     = alltrue([for id, alarm in aws_cloudwatch_metric_alarm.alarm : length(regexall("\\$|null", alarm.alarm_description)) == 0 && length(regexall("docs/operate/runbook\\.md#${id}$", alarm.alarm_description)) > 0])
    error_message = "Each description must have values for its names, and end with its section of the runbook."
  }
  # The provider sets 256 KiB if the module is silent. SQS, and so CloudFormation, sets 1 MiB.
  assert {
    condition     = aws_sqs_queue.queue.max_message_size == 1048576 && aws_sqs_queue.dead_letter_queue.max_message_size == 1048576
    error_message = "Both queues must take messages of 1 MiB."
  }
  # The provider computes a block that is not given, so tracing would stay on.
  assert {
    condition     = aws_lambda_function.function.tracing_config[0].mode == "PassThrough"
    error_message = "Without tracing, the module must set the mode of the time before it."
  }
}

run "every_option" {
  command = plan
  variables {
    alarm_email              = "ops@example.com"
    alarm_topic_arn          = "arn:aws:sns:eu-west-1:123456789012:pager"
    architecture             = "x86_64"
    code_signing_config_arn  = "arn:aws:lambda:eu-west-1:123456789012:code-signing-config:csc-0123456789abcdef0"
    shared_table             = "dynamodb"
    enforce_tls              = true
    environment              = { REQUEUE_TRUSTED_SENDERS = "own" }
    environment_kms_key_arn  = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd"
    headers                  = { Authorization = "Bearer arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders-AbCdEf:token::" }
    kms_key_arn              = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd"
    layers                   = ["arn:aws:lambda:eu-west-1:123456789012:layer:ca:1"]
    log_kms_key_arn          = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd"
    mapping_metrics          = true
    enabled                  = false
    package                  = ""
    package_object           = { bucket = "builds", key = "a.zip", version = "1" }
    permissions_boundary_arn = "arn:aws:iam::123456789012:policy/developers"
    reserve_concurrency      = true
    role_path                = "/service/"
    secret_arns              = ["arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders-AbCdEf"]
    security_group_ids       = ["sg-1"]
    subnet_ids               = ["subnet-1"]
    tags                     = { team = "shop" }
    topic                    = { arn = "arn:aws:sns:eu-west-1:123456789012:orders", operations = ["create"] }
    tracing                  = true
  }

  assert {
    condition     = aws_lambda_function.function.s3_object_version == "1" && aws_lambda_function.function.reserved_concurrent_executions == 10
    error_message = "The function must have its object in S3, and its reserved concurrency."
  }
  assert {
    condition     = aws_lambda_event_source_mapping.messages.maximum_batching_window_in_seconds == 1 && !aws_lambda_event_source_mapping.messages.enabled
    error_message = "The mapping must gather batches for the table, and be disabled."
  }
  assert {
    condition     = aws_iam_role.function.path == "/service/" && aws_iam_role.function.permissions_boundary == var.permissions_boundary_arn
    error_message = "The role must have its path and its boundary."
  }
  assert {
    condition     = length(setsubtract(["EnvironmentKey", "NetworkInterfaces", "Queue", "QueueKey", "Secrets", "Table", "Tracing"], jsondecode(aws_iam_role_policy.function.policy).Statement[*].Sid)) == 0
    error_message = "The role must have a statement for each option."
  }
}

run "gradual_deployment" {
  command = plan
  variables {
    deployment = "Canary10Percent5Minutes"
  }

  assert {
    condition     = aws_lambda_function.function.publish && aws_lambda_event_source_mapping.messages.function_name == aws_lambda_alias.live[0].arn
    error_message = "The mapping must invoke the alias."
  }
  assert {
    condition     = aws_codedeploy_deployment_group.live[0].deployment_config_name == "CodeDeployDefault.LambdaCanary10Percent5Minutes" && contains(aws_codedeploy_deployment_group.live[0].alarm_configuration[0].alarms, "requeue-new-version-errors")
    error_message = "CodeDeploy must roll back by the alarm on the new version."
  }
  assert {
    condition     = length(regexall("doctor --function requeue:live`", aws_cloudwatch_metric_alarm.alarm["throttles"].alarm_description)) == 1
    error_message = "Alarms must name the alias."
  }
}

run "function_as_target" {
  command = plan
  variables {
    target_url      = ""
    target_function = "orders:live"
  }

  assert {
    condition     = aws_lambda_function.function.environment[0].variables.REQUEUE_TARGET_FUNCTION == "orders:live" && !contains(keys(aws_lambda_function.function.environment[0].variables), "REQUEUE_TARGET_URL")
    error_message = "The function must have the target, and no URL."
  }
  assert {
    condition     = one([for statement in jsondecode(aws_iam_role_policy.function.policy).Statement : statement.Resource if statement.Sid == "TargetFunction"]) == ["arn:aws:lambda:eu-west-1:123456789012:function:orders:live"]
    error_message = "The role may invoke the target and nothing else."
  }
}

# One value below or beside each bound.
run "values_below" {
  command = plan
  variables {
    batch_size               = 0
    batching_window          = -1
    function_timeout         = 0
    maximum_concurrency      = 1
    maximum_pollers          = -1
    minimum_pollers          = 1
    max_message_age_seconds  = 59
    max_queue_depth          = -1
    max_receive_count        = 4
    memory_size              = 127
    message_concurrency      = 0
    messages_per_call        = 0
    message_retention_period = 59
    message_timeout          = 0
    monitoring               = "dashboard"
    target_url               = "ftp://example.com"
  }
  expect_failures = [
    var.batch_size, var.batching_window, var.function_timeout, var.maximum_concurrency, var.maximum_pollers, var.minimum_pollers, var.max_message_age_seconds, var.max_queue_depth,
    var.max_receive_count, var.memory_size, var.message_concurrency, var.messages_per_call, var.message_retention_period, var.message_timeout, var.monitoring, var.target_url,
  ]
}

run "values_above" {
  command = plan
  variables {
    alarm_email              = "ops"
    batch_size               = 9.5
    batching_window          = 301
    deployment               = "Canary20Percent5Minutes"
    function_timeout         = 901
    memory_size              = 10241
    message_retention_period = 1209601
    message_timeout          = 891
    name                     = "orders.fifo"
    role_path                = "service"
    secret_arns              = ["arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders"]
    subnet_ids               = ["vpc-1"]
    target_function          = "orders:*"
    topic                    = { arn = "orders" }
  }
  expect_failures = [
    var.alarm_email, var.batch_size, var.batching_window, var.deployment, var.function_timeout, var.memory_size, var.message_retention_period,
    var.message_timeout, var.name, var.role_path, var.secret_arns, var.subnet_ids, var.target_function, var.topic,
  ]
}

run "window_of_a_fifo_queue" {
  command = plan
  variables {
    fifo              = true
    dead_letter_mode  = "direct"
    max_receive_count = 100
    batching_window   = 1
  }
  expect_failures = [aws_lambda_event_source_mapping.messages]
}
