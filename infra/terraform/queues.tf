# The queue, its dead-letter queue, and the topic that fills the queue.

locals {
  suffix     = var.fifo ? ".fifo" : ""
  queue_name = "${var.name}-messages${local.suffix}"

  # 1 MiB, the default of SQS. Without it, the provider sets 256 KiB.
  max_message_size = 1048576
}

# The messages of both queues are accepted work, and SQS cannot bring them back. So a plan that would
# destroy or replace a queue fails. README.md says how to remove the module or rename the queues.
resource "aws_sqs_queue" "queue" {
  name                       = local.queue_name
  fifo_queue                 = var.fifo
  sqs_managed_sse_enabled    = var.kms_key_arn == "" ? true : null
  kms_master_key_id          = var.kms_key_arn == "" ? null : var.kms_key_arn
  message_retention_seconds  = var.message_retention_period
  visibility_timeout_seconds = local.visibility_timeout
  max_message_size           = local.max_message_size
  tags                       = var.tags

  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead_letter_queue.arn
    maxReceiveCount     = var.max_receive_count
  })

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_sqs_queue" "dead_letter_queue" {
  name                    = "${var.name}-dead-letters${local.suffix}"
  fifo_queue              = var.fifo
  sqs_managed_sse_enabled = var.kms_key_arn == "" ? true : null
  kms_master_key_id       = var.kms_key_arn == "" ? null : var.kms_key_arn
  max_message_size        = local.max_message_size
  tags                    = var.tags

  # 14 days, the longest period that SQS allows.
  message_retention_seconds = 1209600

  # The queue's ARN by its name, since both queues refer to each other.
  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = ["arn:${data.aws_partition.current.partition}:sqs:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:${local.queue_name}"]
  })

  lifecycle {
    prevent_destroy = true
  }
}

# SQS accepts no statement about two queues, so each queue has a policy of its own. Other senders need
# an IAM policy, such as infra/policies/producer.json.
resource "aws_sqs_queue_policy" "queue" {
  count     = var.topic != null || var.enforce_tls ? 1 : 0
  queue_url = aws_sqs_queue.queue.id

  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = local.queue_statements[0]
  })
}

resource "aws_sqs_queue_policy" "dead_letter_queue" {
  count     = var.topic != null || var.enforce_tls ? 1 : 0
  queue_url = aws_sqs_queue.dead_letter_queue.id

  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = local.queue_statements[1]
  })
}

locals {
  # The statements of the queue, and of the dead-letter queue.
  queue_statements = [
    for arn in [aws_sqs_queue.queue.arn, aws_sqs_queue.dead_letter_queue.arn] : concat(
      [
        for topic in var.topic[*] : {
          Effect    = "Allow"
          Principal = { Service = "sns.amazonaws.com" }
          Action    = "sqs:SendMessage"
          Resource  = arn
          Condition = { ArnEquals = { "aws:SourceArn" = topic.arn } }
        }
      ],
      [
        for tls in [true] : {
          Effect    = "Deny"
          Principal = { AWS = "*" }
          Action    = "sqs:*"
          Resource  = arn
          Condition = { Bool = { "aws:SecureTransport" = "false" } }
        } if var.enforce_tls
      ],
    )
  ]
}

resource "aws_sns_topic_subscription" "messages" {
  count     = var.topic == null ? 0 : 1
  topic_arn = var.topic.arn
  protocol  = "sqs"
  endpoint  = aws_sqs_queue.queue.arn

  # Without raw delivery, SNS wraps each body into JSON of its own, attributes included.
  raw_message_delivery = true
  filter_policy        = length(var.topic.operations) > 0 ? jsonencode({ operation = var.topic.operations }) : null

  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead_letter_queue.arn
  })

  lifecycle {
    precondition {
      condition     = !var.fifo || length(regexall("\\.fifo$", var.topic.arn)) > 0
      error_message = "topic is a standard topic, and SNS delivers to a FIFO queue from a FIFO topic only: give a FIFO topic, or a standard queue."
    }
  }

  # SQS refuses messages that SNS sends before these policies exist.
  depends_on = [aws_sqs_queue_policy.queue, aws_sqs_queue_policy.dead_letter_queue]
}
