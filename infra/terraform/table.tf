# The table that the execution environments share, if var.shared_table asks for one.

# Kept like the queues: README.md says how to remove the module. No point-in-time recovery: a lost item is
# made anew by the next message, and an old one would be wrong.
resource "aws_dynamodb_table" "table" {
  # checkov:skip=CKV_AWS_28: a comment above says why
  # checkov:skip=CKV_AWS_119: kms_key_arn decides
  count        = var.shared_table == "dynamodb" && var.table == null ? 1 : 0
  name         = "${var.name}-table"
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "id"
  tags         = var.tags

  attribute {
    name = "id"
    type = "S"
  }

  ttl {
    attribute_name = "expires"
    enabled        = true
  }

  # Otherwise by a key that DynamoDB owns, for which no role needs a permission.
  dynamic "server_side_encryption" {
    for_each = var.kms_key_arn == "" ? [] : [var.kms_key_arn]

    content {
      enabled     = true
      kms_key_arn = server_side_encryption.value
    }
  }

  lifecycle {
    prevent_destroy = true
  }
}

locals {
  # The table of the module, or the given one.
  table_arns  = var.shared_table == "dynamodb" ? concat(aws_dynamodb_table.table[*].arn, [for table in var.table[*] : table.arn]) : []
  table_names = var.shared_table == "dynamodb" ? concat(aws_dynamodb_table.table[*].name, [for table in var.table[*] : split("/", table.arn)[1]]) : []
}
