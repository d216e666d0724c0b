# Variables that are no parameters of the template.

# Names

variable "name" {
  description = "Name of the function; the names of all other resources begin with it. A change would replace the queues, so a plan with it fails."
  type        = string
  nullable    = false
  validation {
    condition     = length(regexall("^[A-Za-z0-9_-]{1,62}$", var.name)) > 0
    error_message = "The variable name must have 1 to 62 letters, digits, hyphens and underscores."
  }
}

variable "tags" {
  description = "Tags of every resource that can have them."
  type        = map(string)
  default     = {}
  nullable    = false
}

# Code

variable "package" {
  description = "Path of the function's zip file, as cargo-lambda builds it: target/lambda/requeue-lambda/bootstrap.zip. Give either this or package_object."
  type        = string
  default     = ""
  nullable    = false
}

variable "package_object" {
  description = "The function's zip file in S3. A new key or version deploys the function anew. Give either this or package."
  type = object({
    bucket  = string
    key     = string
    version = optional(string)
  })
  default = null
}

variable "architecture" {
  description = "Processor for which the package is built. With another one, the function cannot start."
  type        = string
  default     = "arm64"
  nullable    = false
  validation {
    condition     = contains(["arm64", "x86_64"], var.architecture)
    error_message = "The variable architecture must be one of arm64, x86_64."
  }
}

variable "layers" {
  description = "ARNs of layers, for example with a file for SSL_CERT_FILE."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "code_signing_config_arn" {
  description = "ARN of the code signing configuration that the package must satisfy. Empty: none."
  type        = string
  default     = ""
  nullable    = false
  validation {
    condition     = length(regexall("^(arn:aws[a-z-]*:lambda:[a-z0-9-]+:[0-9]{12}:code-signing-config:csc-[a-z0-9]{17})?$", var.code_signing_config_arn)) > 0
    error_message = "The variable code_signing_config_arn must be the ARN of a code signing configuration, or empty."
  }
}

# The function and its role

variable "allow_http" {
  description = "Whether target_url may be http. Bodies, headers and secrets then travel unencrypted."
  type        = bool
  default     = false
  nullable    = false
}

variable "environment" {
  description = "Further settings of the function, for example { REQUEUE_TRUSTED_SENDERS = \"own\" }. Without REQUEUE_SERVICE and REQUEUE_METRICS: alarms and dashboard need their defaults."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "environment_kms_key_arn" {
  description = "ARN of your KMS key that encrypts the function's settings. Empty: AWS manages the key."
  type        = string
  default     = ""
  nullable    = false
  validation {
    condition     = length(regexall("^(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+)?$", var.environment_kms_key_arn)) > 0
    error_message = "The variable environment_kms_key_arn must be the ARN of a key (not of an alias), or empty."
  }
}

variable "log_kms_key_arn" {
  description = "ARN of your KMS key that encrypts the log group. Its policy must allow that to CloudWatch Logs. Empty: AWS manages the key."
  type        = string
  default     = ""
  nullable    = false
  validation {
    condition     = length(regexall("^(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+)?$", var.log_kms_key_arn)) > 0
    error_message = "The variable log_kms_key_arn must be the ARN of a key (not of an alias), or empty."
  }
}

variable "tracing" {
  description = "Whether X-Ray traces the function."
  type        = bool
  default     = false
  nullable    = false
}

variable "role_path" {
  description = "Path of the module's roles in IAM. With deployment, a change needs several applies: an alias moves only between versions with the same role. README.md has them."
  type        = string
  default     = "/"
  nullable    = false
  validation {
    condition     = length(regexall("^/([!-~]+/)?$", var.role_path)) > 0
    error_message = "The variable role_path must begin and end with a slash."
  }
}

variable "deployment" {
  description = "How CodeDeploy moves messages to a new version of the function, for example Canary10Percent5Minutes. Alarms roll it back. Empty: an apply updates the function at once."
  type        = string
  default     = ""
  nullable    = false
  validation {
    condition     = length(regexall("^(AllAtOnce|Canary10Percent(5|10|15|30)Minutes|Linear10PercentEvery(1Minute|2Minutes|3Minutes|10Minutes))?$", var.deployment)) > 0
    error_message = "The variable deployment must be AllAtOnce, Canary10PercentNMinutes with 5, 10, 15 or 30, Linear10PercentEvery1Minute, Linear10PercentEveryNMinutes with 2, 3 or 10, or empty."
  }
}

# Queues, event source mapping and table

variable "topic" {
  description = "An SNS topic in this region; with fifo, a FIFO topic. Its messages arrive in the queue as published, with up to ten attributes. SNS sends a message with more, or one that it cannot deliver, to the dead-letter queue. With operations, only messages whose attribute operation has one of these values come into the queue. Before you change arn, stop publishing to the topic: messages are lost during the apply."
  type = object({
    arn        = string
    operations = optional(list(string), [])
  })
  default = null
  validation {
    condition     = alltrue([for topic in var.topic[*] : length(regexall("^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+(\\.fifo)?$", topic.arn)) > 0])
    error_message = "The variable topic must have the ARN of a topic as arn."
  }
}

variable "table" {
  description = "A table of your own which several functions can share, instead of one that the module makes. Its partition key is the text id, it has no sort key, and its attribute for time to live is expires. With a KMS key of yours, give kms_key_arn."
  type = object({
    arn         = string
    kms_key_arn = optional(string, "")
  })
  default = null
  validation {
    condition     = alltrue([for table in var.table[*] : length(regexall("^arn:aws[a-z-]*:dynamodb:[a-z0-9-]+:[0-9]{12}:table/[A-Za-z0-9_.-]+$", table.arn)) > 0])
    error_message = "The variable table must have the ARN of a table as arn."
  }
}

variable "enforce_tls" {
  description = "Whether the policies of the queues, and of the topic for alarm_email, refuse requests without TLS."
  type        = bool
  default     = false
  nullable    = false
}

variable "enabled" {
  description = "Whether Lambda fetches messages for the function. Each apply sets it: to keep the function stopped in an emergency, set false here too."
  type        = bool
  default     = true
  nullable    = false
}

variable "mapping_metrics" {
  description = "Whether the event source mapping counts its events in CloudWatch, which bills these metrics."
  type        = bool
  default     = false
  nullable    = false
}
