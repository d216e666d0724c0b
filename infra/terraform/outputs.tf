output "queue_url" {
  description = "Send messages here."
  value       = aws_sqs_queue.queue.id
}

output "queue_arn" {
  description = "ARN of the queue."
  value       = aws_sqs_queue.queue.arn
}

output "dead_letter_queue_url" {
  description = "Dead-lettered messages. Each has the reason in its body, unless dead_letter_mode is redrive."
  value       = aws_sqs_queue.dead_letter_queue.id
}

output "dead_letter_queue_arn" {
  description = "ARN of the dead-letter queue."
  value       = aws_sqs_queue.dead_letter_queue.arn
}

output "function_name" {
  description = "Name of the function."
  value       = aws_lambda_function.function.function_name
}

output "function_arn" {
  description = "ARN of the function."
  value       = aws_lambda_function.function.arn
}

output "role_name" {
  description = "Name of the function's role."
  value       = aws_iam_role.function.name
}

output "log_group_name" {
  description = "Name of the log group. The function's metrics are log lines too."
  value       = aws_cloudwatch_log_group.function.name
}

output "dashboard_url" {
  description = "The dashboard, in the console of the partition aws; null without a dashboard."
  value       = one([for dashboard in aws_cloudwatch_dashboard.dashboard : "https://${data.aws_region.current.region}.console.aws.amazon.com/cloudwatch/home?region=${data.aws_region.current.region}#dashboards/dashboard/${dashboard.dashboard_name}"])
}

output "alarm_arns" {
  description = "ARNs of the alarms, by their sections in the runbook."
  value       = { for section, alarm in aws_cloudwatch_metric_alarm.alarm : section => alarm.arn }
}

output "alarm_topic_arn" {
  description = "Notified when an alarm starts and ends; null without alarm_email. You may add subscriptions."
  value       = one(aws_sns_topic.alarms[*].arn)
}

output "table_name" {
  description = "The table that the module makes for the execution environments; null without it."
  value       = one(aws_dynamodb_table.table[*].name)
}

output "deployment" {
  description = "Argument of `aws deploy create-deployment --cli-input-json`, which moves the alias live to the newest version; empty if the alias is there, and without a gradual deployment."
  value       = join("", local.deployments)
}
