# The function, its settings, its log group and its event source mapping.

locals {
  # AWS's rule: 6 × function timeout + batching window, and room for a window of up to 20 s. Lambda
  # tries a throttled batch again, and SQS must not deliver it a second time meanwhile.
  visibility_timeout = 6 * var.function_timeout + max(20, var.batching_window)

  # With a table, a fuller batch asks it once for all of its messages.
  batching_window = var.shared_table == "dynamodb" && !var.fifo ? max(1, var.batching_window) : var.batching_window

  # The most batches at a time: each poller of the provisioned mode invokes the function up to ten times.
  most_batches = var.maximum_pollers > 0 ? 10 * var.maximum_pollers : var.maximum_concurrency

  # AWS knows a function of this account and region by its name; IAM asks for an ARN.
  is_target_arn = length(regexall("^arn:", var.target_function)) > 0
  target_arns   = var.target_function == "" ? [] : [local.is_target_arn ? var.target_function : "arn:${data.aws_partition.current.partition}:lambda:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:function:${var.target_function}"]

  # The time for one message, without the function's reserve for settling.
  longest_message = var.function_timeout - min(5, var.function_timeout / 4)

  # The policy document, if it is not stored elsewhere. The function checks it when it starts.
  is_stored = length(regexall("^arn:", var.policy)) > 0
  document  = merge({ preset = "standard", errorConfigs = {} }, jsondecode(local.is_stored || var.policy == "" ? "{}" : var.policy))

  # Its entries for rate limit, quota and temporary.
  classes = [
    for names in [["rate-limit", "RATE_LIMIT", "RATE_LIMIT_EXCEEDED"], ["quota", "QUOTA", "QUOTA_EXCEEDED"], ["temporary", "TEMPORARY", "TEMPORARY_ERROR"]] :
    concat([for name in concat(names, ["default", "DEFAULT"]) : local.document.errorConfigs[name] if contains(keys(local.document.errorConfigs), name)], [{}])[0]
  ]

  # The most retries of a message whose failures are all of one class.
  preset       = lookup(local.table.presets, local.document.preset, { maxRetries = 0, totalTimeoutSeconds = [0, 0, 0] })
  max_retries  = lookup(local.document, "maxRetries", local.preset.maxRetries)
  most_retries = max([for entry in local.classes : min(lookup(entry, "maxRetries", local.max_retries), local.max_retries)]...)

  # The longest age at which a message is still retried; unknown if the document is stored elsewhere.
  ages = [
    for index, entry in local.classes :
    tostring(lookup(entry, "totalTimeoutSeconds", lookup(local.document, "totalTimeoutSeconds", local.preset.totalTimeoutSeconds[index])))
  ]
  # A number of seconds, or a duration as in 12h.
  longest_age = local.is_stored ? 0 : max([
    for age in local.ages :
    sum([for part in regexall("([0-9.]+)([dhms]?)", age) : tonumber(part[0]) * { d = 86400, h = 3600, m = 60, s = 1, "" = 1 }[part[1]]])
  ]...)

  # If messages wait in flight, each retry is a receive. In a batch of a FIFO queue, an
  # earlier message of a group uses up receives of later ones.
  needed_receives = var.fifo && var.batch_size != 1 ? 2 * local.most_retries : local.most_retries + 1

  # The function gets an optional setting only if it differs from the function's own default.
  settings = {
    for name, value in {
      REQUEUE_TARGET_URL            = var.target_url
      REQUEUE_TARGET_FUNCTION       = var.target_function
      REQUEUE_MESSAGES_PER_CALL     = var.messages_per_call == 10 ? "" : tostring(var.messages_per_call)
      REQUEUE_ALLOW_HTTP            = var.allow_http ? "true" : ""
      REQUEUE_METHOD                = var.method == "POST" ? "" : var.method
      REQUEUE_CONTENT_TYPE          = var.content_type
      REQUEUE_TIMEOUT_SECONDS       = var.target_function == "" ? tostring(var.message_timeout) : ""
      REQUEUE_CONCURRENCY           = var.message_concurrency == 10 ? "" : tostring(var.message_concurrency)
      REQUEUE_ATTRIBUTE_HEADERS     = join(",", [for attribute, header in var.attribute_headers : "${attribute}=${header}"])
      REQUEUE_CLIENT_CERTIFICATE    = var.client_certificate
      REQUEUE_POLICY                = var.policy
      REQUEUE_SCOPE                 = var.scope
      REQUEUE_TABLE                 = join("", local.table_names)
      REQUEUE_MAX_ENVIRONMENTS      = var.shared_table == "dynamodb" ? tostring(local.most_batches) : ""
      REQUEUE_STRATEGY              = var.strategy == "copy" ? "" : var.strategy
      REQUEUE_DEAD_LETTER           = var.dead_letter_mode
      REQUEUE_DEAD_LETTER_QUEUE_URL = var.dead_letter_mode == "direct" ? aws_sqs_queue.dead_letter_queue.id : ""
      REQUEUE_MODE                  = var.mode == "requeue" ? "" : var.mode
      REQUEUE_RECURSIVE_LOOP        = "Allow"
    } : name => value if value != ""
  }

  # One by one, so that a plan hides these settings only.
  headers        = nonsensitive(length(var.headers) > 0) ? { REQUEUE_HEADERS = jsonencode(var.headers) } : {}
  signing_secret = nonsensitive(var.signing_secret != "") ? { REQUEUE_SIGNING_SECRET = var.signing_secret } : {}
  client_key     = nonsensitive(var.client_key != "") ? { REQUEUE_CLIENT_KEY = var.client_key } : {}
}

resource "aws_cloudwatch_log_group" "function" {
  # checkov:skip=CKV_AWS_338: log_retention_days decides
  name              = "/aws/lambda/${var.name}"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.log_kms_key_arn == "" ? null : var.log_kms_key_arn
  tags              = var.tags
}

resource "aws_lambda_function" "function" {
  # checkov:skip=CKV_AWS_116: that is for asynchronous invocations; the queue has the dead-letter queue
  function_name = var.name
  description   = "Hands each message of the queue to its target and retries it by class of failure."
  role          = aws_iam_role.function.arn
  handler       = "bootstrap"
  runtime       = "provided.al2023"
  architectures = [var.architecture]
  memory_size   = var.memory_size
  timeout       = var.function_timeout
  layers        = var.layers
  kms_key_arn   = var.environment_kms_key_arn == "" ? null : var.environment_kms_key_arn
  publish       = var.deployment != ""
  tags          = var.tags

  filename          = var.package == "" ? null : var.package
  source_code_hash  = var.package == "" ? null : filebase64sha256(var.package)
  s3_bucket         = var.package_object == null ? null : var.package_object.bucket
  s3_key            = var.package_object == null ? null : var.package_object.key
  s3_object_version = var.package_object == null ? null : var.package_object.version

  code_signing_config_arn        = var.code_signing_config_arn == "" ? null : var.code_signing_config_arn
  reserved_concurrent_executions = var.reserve_concurrency ? local.most_batches : -1

  environment {
    variables = merge(local.settings, local.headers, local.signing_secret, local.client_key, var.environment)
  }

  logging_config {
    log_group             = aws_cloudwatch_log_group.function.name
    log_format            = "JSON"
    application_log_level = "INFO"
    system_log_level      = "WARN"
  }

  # Always: the provider takes a missing block for the mode that the function has.
  tracing_config {
    mode = var.tracing ? "Active" : "PassThrough"
  }

  dynamic "vpc_config" {
    for_each = length(var.subnet_ids) > 0 ? [true] : []

    content {
      subnet_ids         = var.subnet_ids
      security_group_ids = var.security_group_ids
    }
  }

  lifecycle {
    precondition {
      condition     = (var.package == "") != (var.package_object == null)
      error_message = "The function has no code, or two: give either package, the path of a zip file, or package_object, a zip file in S3."
    }

    precondition {
      # No ||, since Terraform would evaluate both sides, and fileexists fails for the path "".
      condition     = var.package == "" ? true : fileexists(var.package)
      error_message = "package is ${var.package}, and there is no such file: build it, with cargo lambda build … --output-format zip, or correct the path. Terraform reads it from the directory in which you run it."
    }

    precondition {
      condition     = (var.target_url == "") != (var.target_function == "")
      error_message = "The function has no target, or two: give either target_url, the URL for each message, or target_function, a function of yours."
    }

    precondition {
      condition     = var.target_function != "" || var.message_timeout <= local.longest_message
      error_message = "message_timeout is ${var.message_timeout} s, and function_timeout (${var.function_timeout} s) leaves ${local.longest_message} s for it, without the time for settling: give message_timeout ${local.longest_message} s at most, or a longer function_timeout."
    }

    precondition {
      condition     = var.allow_http || length(regexall("^http://", var.target_url)) == 0 || length(regexall("^http://(localhost|127(\\.\\d{1,3}){3}|\\[::1\\])(:\\d+)?([/?].*)?$", var.target_url)) > 0
      error_message = "target_url is an http URL, and http is for localhost, or with allow_http: give an https URL, for example https://api.example.com/orders."
    }

    precondition {
      condition     = !var.fifo || var.dead_letter_mode != "annotate"
      error_message = "dead_letter_mode is annotate, which writes no reason on a FIFO queue: set direct, or redrive for dead letters without reasons."
    }

    precondition {
      condition     = local.is_stored || (!var.fifo && var.strategy == "copy") || var.mode == "report" || var.max_receive_count >= local.needed_receives
      error_message = "max_receive_count is ${var.max_receive_count}, and with ${var.fifo ? "fifo" : "strategy visibility"} each of the policy's ${local.most_retries} retries is a receive: give max_receive_count ${local.needed_receives}, or policy a lower maxRetries."
    }

    precondition {
      condition     = lookup(local.document, "idempotency", null) == null || var.shared_table == "dynamodb"
      error_message = "policy has idempotency, which needs a table, and shared_table is none: set shared_table to dynamodb, or remove idempotency."
    }

    precondition {
      condition     = local.is_stored || var.message_retention_period >= local.longest_age + 900
      error_message = "message_retention_period is ${var.message_retention_period} s, and the policy retries messages for up to ${local.longest_age} s: give it the policy's longest totalTimeoutSeconds + 900 s, here ${local.longest_age + 900} s, or shorten that timeout."
    }

    precondition {
      condition     = (var.client_certificate == "") == nonsensitive(var.client_key == "")
      error_message = "client_certificate and client_key belong together: give both, or neither."
    }

    precondition {
      condition     = (length(var.subnet_ids) > 0) == (length(var.security_group_ids) > 0)
      error_message = "subnet_ids and security_group_ids belong together: give both, or neither."
    }

    precondition {
      condition     = var.table == null || var.shared_table == "dynamodb"
      error_message = "table is given, and shared_table is none, so the function would not use it: set shared_table to dynamodb, or leave table out."
    }

    precondition {
      condition     = var.monitoring != "none" || (var.alarm_email == "" && var.alarm_topic_arn == "")
      error_message = "alarm_email and alarm_topic_arn need alarms, and monitoring is none: set monitoring to alarms."
    }
  }

  # The function needs its role's permissions when it starts, and logs as soon as it runs.
  depends_on = [aws_iam_role_policy.function]
}

# A retry is a message that the function sends to its own queue. By default, Lambda stops such a loop
# after about 16 rounds and sends the message to the dead-letter queue. The retry policy bounds the
# loop instead.
resource "aws_lambda_function_recursion_config" "function" {
  function_name  = aws_lambda_function.function.function_name
  recursive_loop = "Allow"
}

resource "aws_lambda_event_source_mapping" "messages" {
  function_name                      = var.deployment == "" ? aws_lambda_function.function.arn : aws_lambda_alias.live[0].arn
  event_source_arn                   = aws_sqs_queue.queue.arn
  enabled                            = var.enabled
  batch_size                         = var.batch_size
  maximum_batching_window_in_seconds = var.fifo ? null : local.batching_window # a FIFO queue has none, not even 0
  tags                               = var.tags

  # Without it, Lambda takes every response for success and deletes the failed messages.
  function_response_types = ["ReportBatchItemFailures"]

  # Lambda takes one of the two.
  dynamic "scaling_config" {
    for_each = var.maximum_pollers > 0 ? [] : [true]

    content {
      maximum_concurrency = var.maximum_concurrency
    }
  }

  dynamic "provisioned_poller_config" {
    for_each = var.maximum_pollers > 0 ? [true] : []

    content {
      minimum_pollers = var.minimum_pollers
      maximum_pollers = var.maximum_pollers
    }
  }

  dynamic "metrics_config" {
    for_each = var.mapping_metrics ? [true] : []

    content {
      metrics = ["EventCount"]
    }
  }

  lifecycle {
    precondition {
      condition     = var.batch_size <= 10 || local.batching_window >= 1
      error_message = "batch_size is ${var.batch_size}, and more than 10 need a batching window: give batching_window at least 1 second, or batch_size 10."
    }

    precondition {
      condition     = var.maximum_pollers >= var.minimum_pollers || (var.maximum_pollers == 0 && var.minimum_pollers == 2)
      error_message = "maximum_pollers is ${var.maximum_pollers}, and minimum_pollers is ${var.minimum_pollers}: give maximum_pollers ${var.minimum_pollers} at least, or leave both out."
    }

    precondition {
      condition     = !var.fifo || var.batching_window == 0
      error_message = "batching_window is ${var.batching_window} s, and a FIFO queue has none: set it to 0."
    }
  }

  # No message is handled while Lambda would still stop its retries.
  depends_on = [aws_lambda_function_recursion_config.function]
}
