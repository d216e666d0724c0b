# The function's role: the least that it needs.

locals {
  permissions = [
    {
      sid = "Queue"
      actions = [
        "sqs:ReceiveMessage",          # Lambda's poller
        "sqs:GetQueueAttributes",      # Lambda's poller
        "sqs:DeleteMessage",           # poller: completed messages; function: originals of copies
        "sqs:SendMessage",             # the function: copies
        "sqs:ChangeMessageVisibility", # the function: messages that wait in flight
      ]
      resources = [aws_sqs_queue.queue.arn]
    },
    {
      sid = "Logs"
      actions = [
        "logs:CreateLogStream", # one for each execution environment
        "logs:PutLogEvents",    # the log lines
      ]
      resources = ["${aws_cloudwatch_log_group.function.arn}:*"]
    },
    # For an alias, IAM compares the ARN with the alias; the function without it stays out of reach.
    {
      sid = "TargetFunction"
      actions = [
        "lambda:InvokeFunction",           # the function: its calls
        "lambda:GetFunctionConfiguration", # the function's start: the timeout of its target
      ]
      resources = local.target_arns
    },
    {
      sid = "QueueKey"
      actions = [
        "kms:GenerateDataKey", # SQS, for the function: to encrypt copies
        "kms:Decrypt",         # SQS: messages for the poller, new data keys for the function
      ]
      resources = compact(concat([var.kms_key_arn], var.other_kms_key_arns))
    },
    {
      sid = "Table"
      actions = [
        "dynamodb:GetItem",    # the function: the state of a scope
        "dynamodb:UpdateItem", # the function: its next calls
      ]
      resources = local.table_arns
    },
    {
      sid       = "TableKey"
      actions   = ["kms:Decrypt"] # DynamoDB, for the function: the key of the table
      resources = var.shared_table == "dynamodb" ? compact([for table in var.table[*] : table.kms_key_arn]) : []
    },
    {
      sid       = "DeadLetters"
      actions   = ["sqs:SendMessage"] # the function: dead-lettered messages; its version before may have the mode direct
      resources = var.dead_letter_mode == "direct" || var.deployment != "" ? [aws_sqs_queue.dead_letter_queue.arn] : []
    },
    {
      sid       = "Secrets"
      actions   = ["secretsmanager:GetSecretValue"] # the function's start: its secrets
      resources = var.secret_arns
    },
    {
      sid       = "Parameters"
      actions   = ["ssm:GetParameter"] # the function's start: its parameters
      resources = var.parameter_arns
    },
    {
      sid       = "SecretKey"
      actions   = ["kms:Decrypt"] # Secrets Manager and SSM, for the function: these secrets
      resources = compact([var.secret_kms_key_arn])
    },
    {
      sid       = "EnvironmentKey"
      actions   = ["kms:Decrypt"] # Lambda, for the function: its settings
      resources = compact([var.environment_kms_key_arn])
    },
    {
      sid       = "Tracing"
      actions   = ["xray:PutTraceSegments", "xray:PutTelemetryRecords"]
      resources = var.tracing ? ["*"] : [] # X-Ray has no narrower resource
    },
    # As Lambda asks for them. Only Lambda itself may use them: its requests for network interfaces lack
    # the key of the condition, and those of the function's code have it.
    {
      sid = "NetworkInterfaces"
      actions = [
        "ec2:CreateNetworkInterface",     # one for subnet and security groups together
        "ec2:DescribeNetworkInterfaces",  # whether it is ready
        "ec2:DescribeSubnets",            # the VPC of the subnets
        "ec2:DeleteNetworkInterface",     # when no function uses it any longer
        "ec2:AssignPrivateIpAddresses",   # addresses in the subnet
        "ec2:UnassignPrivateIpAddresses", # the same, given back
      ]
      resources = length(var.subnet_ids) > 0 ? ["*"] : [] # a shared subnet is of another account
    },
  ]
}

# A unique name that begins with the module's: a role's name must be unique in all regions.
resource "aws_iam_role" "function" {
  name_prefix          = "${substr(var.name, 0, 37)}-"
  path                 = var.role_path
  permissions_boundary = var.permissions_boundary_arn == "" ? null : var.permissions_boundary_arn
  tags                 = var.tags

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Effect    = "Allow"
        Principal = { Service = "lambda.amazonaws.com" }
        Action    = "sts:AssumeRole"
      }
    ]
  })

  # A change of the path makes a new role. The old one stays until the function has the new one. An
  # alias may still call a version with the old role: README.md says how to change the path then.
  lifecycle {
    create_before_destroy = true
  }
}

# One policy, which IAM replaces at once: while a key changes, no moment is without either.
resource "aws_iam_role_policy" "function" {
  name = "requeue"
  role = aws_iam_role.function.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      for permission in local.permissions : {
        for key, value in {
          Sid       = permission.sid
          Effect    = "Allow"
          Action    = permission.actions
          Resource  = permission.resources
          Condition = permission.sid == "NetworkInterfaces" ? { Null = { "lambda:SourceFunctionArn" = "true" } } : null
        } : key => value if value != null
      } if length(permission.resources) > 0
    ]
  })

  # As for the role.
  lifecycle {
    create_before_destroy = true
  }
}
