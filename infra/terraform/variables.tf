# The template's parameters, with its patterns and limits, and further options of the deployment.

# Names

variable "name" {
  description = <<-EOT
    Name of the function; the names of all other resources begin with it. A change would replace the
    queues, so a plan with it fails.
  EOT
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
  description = <<-EOT
    Path of the function's zip file, as cargo-lambda builds it:
    target/lambda/requeue-lambda/bootstrap.zip. Give either this or package_object.
  EOT
  type        = string
  default     = ""
  nullable    = false
}

variable "package_object" {
  description = <<-EOT
    The function's zip file in S3. A new key or version deploys the function anew. Give either this or
    package.
  EOT
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

# HTTP endpoint

variable "target_url" {
  description = "URL to which the function sends each message (https)."
  type        = string
  nullable    = false

  validation {
    condition     = length(regexall("^https?://[^/].*$", var.target_url)) > 0
    error_message = "The variable target_url must be an https URL; http is for localhost, or with allow_http."
  }
}

variable "allow_http" {
  description = "Whether target_url may be http. Bodies, headers and secrets then travel unencrypted."
  type        = bool
  default     = false
  nullable    = false
}

variable "method" {
  description = "HTTP method of each request."
  type        = string
  default     = "POST"
  nullable    = false

  validation {
    condition     = contains(["POST", "PUT", "PATCH"], var.method)
    error_message = "The variable method must be one of POST, PUT, PATCH."
  }
}

variable "content_type" {
  description = <<-EOT
    Content-Type of messages without the attribute Body.ContentType, for example text/csv. Empty:
    the body decides.
  EOT
  type        = string
  default     = ""
  nullable    = false

  validation {
    condition     = length(regexall("^([^/\\s]+/[^/\\s].*)?$", var.content_type)) > 0
    error_message = "The variable content_type must be a media type, or empty."
  }
}

variable "message_timeout" {
  description = "Seconds that the endpoint may take for one message."
  type        = number
  default     = 10
  nullable    = false

  validation {
    condition     = var.message_timeout >= 1 && var.message_timeout <= 890
    error_message = "The variable message_timeout must be 1 to 890."
  }
}

variable "message_concurrency" {
  description = "Most messages of one batch that the function sends to the endpoint at a time."
  type        = number
  default     = 10
  nullable    = false

  validation {
    condition     = var.message_concurrency >= 1 && var.message_concurrency <= 1000
    error_message = "The variable message_concurrency must be 1 to 1000."
  }
}

# Headers and secrets

variable "headers" {
  description = <<-EOT
    Headers of every request. Terraform's state and the function's configuration show them. So give
    the ARN of a secret instead of its value, as in
    { Authorization = "Bearer arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders-AbCdEf:token::" },
    and list the secret in secret_arns or parameter_arns.
  EOT
  type        = map(string)
  default     = {}
  nullable    = false
  sensitive   = true
}

variable "attribute_headers" {
  description = "Message attributes to send as headers, for example { tenant = \"X-Tenant\" }."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for attribute, header in var.attribute_headers : length(regexall("^[\\w.-]+=[^\\s,=]+$", "${attribute}=${header}")) > 0])
    error_message = "The variable attribute_headers must be a map from attributes to headers, without spaces, commas and equals signs."
  }
}

variable "signing_secret" {
  description = <<-EOT
    Signs every request by Standard Webhooks. Give the ARN of a secret that secret_arns or
    parameter_arns lists, or the secret itself: whsec_ and 24 to 64 bytes in base64. During a
    rotation, give both secrets, separated by a space. Empty: requests are not signed.
  EOT
  type        = string
  default     = ""
  nullable    = false
  sensitive   = true

  validation {
    condition     = length(regexall("^((whsec_|arn:)\\S+( (whsec_|arn:)\\S+)*)?$", var.signing_secret)) > 0
    error_message = "The variable signing_secret must be whsec_ and base64, or the ARN of a secret, or several of these separated by spaces, or empty."
  }
}

variable "client_certificate" {
  description = <<-EOT
    Client certificate for mutual TLS, with client_key. Give the ARN of a secret that holds it in
    PEM, or the PEM itself; Lambda limits all settings together to 4 KB. Empty: none.
  EOT
  type        = string
  default     = ""
  nullable    = false

  validation {
    condition     = length(regexall("^(arn:\\S+|-----BEGIN CERTIFICATE-----[\\s\\S]+)?$", var.client_certificate)) > 0
    error_message = "The variable client_certificate must be a certificate in PEM, or the ARN of a secret, or empty."
  }
}

variable "client_key" {
  description = <<-EOT
    Private key of client_certificate. Give the ARN of a secret that holds it in PEM, unencrypted,
    and list the secret in secret_arns or parameter_arns; or give the PEM itself.
  EOT
  type        = string
  default     = ""
  nullable    = false
  sensitive   = true

  validation {
    condition     = length(regexall("^(arn:\\S+|-----BEGIN ((RSA|EC) )?PRIVATE KEY-----[\\s\\S]+)?$", var.client_key)) > 0
    error_message = "The variable client_key must be a private key in PEM, or the ARN of a secret, or empty."
  }
}

variable "secret_arns" {
  description = <<-EOT
    ARNs of the Secrets Manager secrets that the variables above name. An ARN ends in a hyphen and
    six characters; leave out :json-key:version-stage:version-id after them.
  EOT
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for arn in var.secret_arns : length(regexall("^(arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@!-]+-[A-Za-z0-9]{6})$", arn)) > 0])
    error_message = "The variable secret_arns must be whole ARNs of secrets, without :json-key:version-stage:version-id."
  }
}

variable "parameter_arns" {
  description = <<-EOT
    ARNs of the SSM parameters that the variables above name, without :version or :label.
  EOT
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for arn in var.parameter_arns : length(regexall("^(arn:aws[a-z-]*:ssm:[a-z0-9-]+:[0-9]{12}:parameter/[A-Za-z0-9/_.-]+)$", arn)) > 0])
    error_message = "The variable parameter_arns must be ARNs of parameters, without :version or :label."
  }
}

variable "secret_kms_key_arn" {
  description = <<-EOT
    ARN of your KMS key that encrypts these secrets and parameters. Empty: AWS manages the keys.
  EOT
  type        = string
  default     = ""
  nullable    = false

  validation {
    condition     = length(regexall("^(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+)?$", var.secret_kms_key_arn)) > 0
    error_message = "The variable secret_kms_key_arn must be the ARN of a key (not of an alias), or empty."
  }
}

# Retries

variable "policy" {
  description = <<-EOT
    The retry policy as one JSON document, for example {"preset":"critical"}, or the ARN of a
    parameter with it that parameter_arns lists. Empty: the built-in policy "standard".
  EOT
  type        = string
  default     = ""
  nullable    = false
}

variable "scope" {
  description = <<-EOT
    Divides messages into scopes; a pause or an open circuit holds back one scope only. Give the
    name of a message attribute, for example tenant, or a JSON pointer into the body, for example
    /account/id. Empty: all messages are one scope.
  EOT
  type        = string
  default     = ""
  nullable    = false

  validation {
    condition     = length(regexall("^([A-Za-z0-9_.-]+|/.*)?$", var.scope)) > 0
    error_message = "The variable scope must be the name of a message attribute, or a JSON pointer such as /account/id, or empty."
  }
}

variable "coordination" {
  description = <<-EOT
    dynamodb makes a table that all execution environments share, so that a rateLimit of the policy
    holds for all of them together. Except with fifo, batching_window is then at least 1 s. none: each
    environment keeps its own.
  EOT
  type        = string
  default     = "none"
  nullable    = false

  validation {
    condition     = contains(["none", "dynamodb"], var.coordination)
    error_message = "The variable coordination must be one of none, dynamodb."
  }
}

variable "table" {
  description = <<-EOT
    A table of your own for coordination, which several functions can share, instead of one that the
    module makes. Its partition key is the text id, it has no sort key, and its attribute for time to
    live is expires. With a KMS key of yours, give kms_key_arn.
  EOT
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

variable "strategy" {
  description = <<-EOT
    How a message waits for its retry: as a delayed copy (copy), or by its visibility timeout
    (visibility). A FIFO queue always uses visibility. Then every receive counts as a retry;
    see max_receive_count.
  EOT
  type        = string
  default     = "copy"
  nullable    = false

  validation {
    condition     = contains(["copy", "visibility"], var.strategy)
    error_message = "The variable strategy must be one of copy, visibility."
  }
}

variable "dead_letter_mode" {
  description = <<-EOT
    How a given-up message reaches the dead-letter queue. annotate: Requeue replaces it by a copy
    with the reason, and SQS moves the copy. redrive: SQS moves the unchanged message after
    max_receive_count receives. direct: the function sends a copy with the reason there.
  EOT
  type        = string
  default     = "annotate"
  nullable    = false

  validation {
    condition     = contains(["annotate", "redrive", "direct"], var.dead_letter_mode)
    error_message = "The variable dead_letter_mode must be one of annotate, redrive, direct."
  }
}

variable "mode" {
  description = <<-EOT
    requeue retries failed messages. report, for emergencies, only classifies and logs failures and
    leaves the messages to SQS.
  EOT
  type        = string
  default     = "requeue"
  nullable    = false

  validation {
    condition     = contains(["requeue", "report"], var.mode)
    error_message = "The variable mode must be one of requeue, report."
  }
}

# Function

variable "memory_size" {
  description = "Memory of the function in MB. Its share of a processor grows with it."
  type        = number
  default     = 256
  nullable    = false

  validation {
    condition     = var.memory_size >= 128 && var.memory_size <= 10240
    error_message = "The variable memory_size must be 128 to 10240."
  }
}

variable "function_timeout" {
  description = <<-EOT
    Seconds that one batch may take. The queue's visibility timeout follows from it. Lower it in steps,
    each to at least a sixth of the value before: a batch that still runs must not outlast it.
  EOT
  type        = number
  default     = 60
  nullable    = false

  validation {
    condition     = var.function_timeout >= 1 && var.function_timeout <= 900 && floor(var.function_timeout) == var.function_timeout
    error_message = "The variable function_timeout must be a whole number from 1 to 900."
  }
}

variable "batch_size" {
  description = "Most messages in one invocation. More than 10 need a batching_window."
  type        = number
  default     = 10
  nullable    = false

  validation {
    condition     = var.batch_size >= 1 && var.batch_size <= 10000
    error_message = "The variable batch_size must be 1 to 10000."
  }
}

variable "batching_window" {
  description = "Seconds that Lambda gathers messages before it invokes the function."
  type        = number
  default     = 0
  nullable    = false

  validation {
    condition     = var.batching_window >= 0 && var.batching_window <= 20
    error_message = "The variable batching_window must be 0 to 20."
  }
}

variable "maximum_concurrency" {
  description = <<-EOT
    Most batches at a time. The endpoint gets at most this many times message_concurrency requests
    at once.
  EOT
  type        = number
  default     = 10
  nullable    = false

  validation {
    condition     = var.maximum_concurrency >= 2 && var.maximum_concurrency <= 1000
    error_message = "The variable maximum_concurrency must be 2 to 1000."
  }
}

variable "enabled" {
  description = <<-EOT
    Whether Lambda fetches messages for the function. Each apply sets it: to keep the function
    stopped in an emergency, set false here too.
  EOT
  type        = bool
  default     = true
  nullable    = false
}

variable "log_retention_days" {
  description = "Days that CloudWatch keeps the log lines."
  type        = number
  default     = 30
  nullable    = false

  validation {
    condition     = contains([1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653], var.log_retention_days)
    error_message = "The variable log_retention_days must be one of 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653."
  }
}

# Queue

variable "fifo" {
  description = <<-EOT
    Whether both queues are FIFO queues. Then set dead_letter_mode to direct, or to redrive for dead
    letters without reasons, and see max_receive_count. A plan with a
    change fails, since new queues would replace these and their messages.
  EOT
  type        = bool
  default     = false
  nullable    = false
}

variable "message_retention_period" {
  description = <<-EOT
    Seconds that SQS keeps a message, from 3 to 10 days. Every retry is a new message and starts
    the period anew, so it bounds the wait in a backlog. It must exceed the policy's longest
    totalTimeoutSeconds by more than 900 seconds. If you lower it, SQS deletes waiting messages that
    are older within 15 minutes, and does not move them to the dead-letter queue. So look at
    ApproximateAgeOfOldestMessage first.
  EOT
  type        = number
  default     = 604800
  nullable    = false

  validation {
    condition     = var.message_retention_period >= 259200 && var.message_retention_period <= 864000
    error_message = "The variable message_retention_period must be 259200 to 864000."
  }
}

variable "max_receive_count" {
  description = <<-EOT
    Receives after which SQS moves a message to the dead-letter queue; AWS recommends at least 5. It
    bounds receives without a response (timeout, throttle), not retries: each retry is a new
    message. With fifo or strategy visibility, each retry is a receive: it must be above the
    policy's maxRetries; on a FIFO queue in batches, at least twice that number. With
    dead_letter_mode annotate, keep it low: a given-up message must be received that often, ten
    times at once, then once in each visibility timeout.
  EOT
  type        = number
  default     = 5
  nullable    = false

  validation {
    condition     = var.max_receive_count >= 5 && var.max_receive_count <= 1000
    error_message = "The variable max_receive_count must be 5 to 1000."
  }
}

variable "kms_key_arn" {
  description = <<-EOT
    ARN of your KMS key that encrypts both queues, and the table that coordination makes. Empty: AWS
    manages the keys. Producers need kms:GenerateDataKey and kms:Decrypt on it, as the function does.
    With topic, the key's policy must allow both to sns.amazonaws.com. Before a change, see
    other_kms_key_arns.
  EOT
  type        = string
  default     = ""
  nullable    = false

  validation {
    condition     = length(regexall("^(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+)?$", var.kms_key_arn)) > 0
    error_message = "The variable kms_key_arn must be the ARN of a key (not of an alias), or empty."
  }
}

variable "other_kms_key_arns" {
  description = <<-EOT
    ARNs of other KMS keys that the function may use for the queues. Before kms_key_arn changes,
    give the next key here. Afterwards give the previous one, until no message is left that it
    encrypts.
  EOT
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for arn in var.other_kms_key_arns : length(regexall("^(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+)$", arn)) > 0])
    error_message = "The variable other_kms_key_arns must be ARNs of keys (not of aliases)."
  }
}

variable "topic" {
  description = <<-EOT
    An SNS topic in this region; with fifo, a FIFO topic. Its messages arrive in the queue as
    published, with up to ten attributes. SNS sends a message with more, or one that it cannot
    deliver, to the dead-letter queue. With operations, only messages whose attribute operation has
    one of these values come into the queue. Before you change arn, stop publishing to the topic:
    messages are lost during the apply.
  EOT
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

# Monitoring

variable "monitoring" {
  description = <<-EOT
    Alarms and dashboard to create. CloudWatch bills about 3 USD a month for the dashboard, beyond
    an account's first three, and about 1 USD for the eight alarms, which read ten metrics at 0.10
    USD.
  EOT
  type        = string
  default     = "alarms-and-dashboard"
  nullable    = false

  validation {
    condition     = contains(["alarms-and-dashboard", "alarms", "none"], var.monitoring)
    error_message = "The variable monitoring must be one of alarms-and-dashboard, alarms, none."
  }
}

variable "max_queue_depth" {
  description = <<-EOT
    An alarm fires when more messages than this wait to be received. Those that wait for the time of
    their retry do not count.
  EOT
  type        = number
  default     = 5000
  nullable    = false

  validation {
    condition     = var.max_queue_depth >= 0
    error_message = "The variable max_queue_depth must be at least 0."
  }
}

variable "max_message_age_seconds" {
  description = <<-EOT
    An alarm fires when a message is older than this many seconds, all its retries included. Raise
    it if the policy usually waits longer, for example for a daily quota.
  EOT
  type        = number
  default     = 900
  nullable    = false

  validation {
    condition     = var.max_message_age_seconds >= 60
    error_message = "The variable max_message_age_seconds must be at least 60."
  }
}

variable "alarm_email" {
  description = <<-EOT
    E-mail address that is notified when an alarm starts and ends. AWS first sends it a mail to
    confirm. After a change, nobody is notified until the new address has confirmed. If this and
    alarm_topic_arn are empty, alarms change state without a notification.
  EOT
  type        = string
  default     = ""
  nullable    = false

  validation {
    condition     = length(regexall("^([^@\\s]+@[^@\\s]+)?$", var.alarm_email)) > 0
    error_message = "The variable alarm_email must be an e-mail address, or empty."
  }
}

variable "alarm_topic_arn" {
  description = <<-EOT
    ARN of an SNS topic that is notified when an alarm starts and ends. Its policy must allow
    sns:Publish to cloudwatch.amazonaws.com. An encrypted topic needs your own KMS key, whose policy
    allows that service kms:Decrypt and kms:GenerateDataKey*. Empty: none.
  EOT
  type        = string
  default     = ""
  nullable    = false

  validation {
    condition     = length(regexall("^(arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+)?$", var.alarm_topic_arn)) > 0
    error_message = "The variable alarm_topic_arn must be the ARN of a standard topic, or empty."
  }
}

variable "runbook_url" {
  description = <<-EOT
    Address of the runbook. Every alarm's description ends with it and the alarm's section. The
    default is the page in Requeue's repository; give the address of your copy.
  EOT
  type        = string
  default     = "docs/operate/runbook.md"
  nullable    = false

  # The longest description with it has 1,024 characters, CloudWatch's limit.
  validation {
    condition     = length(var.runbook_url) <= 285
    error_message = "The variable runbook_url must have at most 285 characters."
  }
}

# Options of the deployment

variable "environment" {
  description = <<-EOT
    Further settings of the function, for example { REQUEUE_TRUSTED_SENDERS = "own" }. Without
    REQUEUE_SERVICE and REQUEUE_METRICS: alarms and dashboard need their defaults.
  EOT
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "layers" {
  description = "ARNs of layers, for example with a file for SSL_CERT_FILE."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "subnet_ids" {
  description = <<-EOT
    Subnets of a VPC, with security_group_ids. The function needs a route from there to the host of
    target_url and to SQS, and to these if it uses them: Secrets Manager (secretsmanager), Parameter
    Store (ssm), and STS (sts) for REQUEUE_TRUSTED_SENDERS = "own". Empty: no VPC.
  EOT
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for id in var.subnet_ids : length(regexall("^subnet-[0-9a-f]+$", id)) > 0])
    error_message = "The variable subnet_ids must be ids of subnets."
  }
}

variable "security_group_ids" {
  description = "Security groups of the function in the VPC, with subnet_ids. They must allow TCP to port 443."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for id in var.security_group_ids : length(regexall("^sg-[0-9a-f]+$", id)) > 0])
    error_message = "The variable security_group_ids must be ids of security groups."
  }
}

variable "permissions_boundary_arn" {
  description = "ARN of the policy that bounds the roles of the module. Empty: none."
  type        = string
  default     = ""
  nullable    = false

  validation {
    condition     = length(regexall("^(arn:aws[a-z-]*:iam::([0-9]{12}|aws):policy/.+)?$", var.permissions_boundary_arn)) > 0
    error_message = "The variable permissions_boundary_arn must be the ARN of a policy, or empty."
  }
}

variable "role_path" {
  description = <<-EOT
    Path of the module's roles in IAM. With deployment, a change needs several applies: an alias
    moves only between versions with the same role. README.md has them.
  EOT
  type        = string
  default     = "/"
  nullable    = false

  validation {
    condition     = length(regexall("^/([!-~]+/)?$", var.role_path)) > 0
    error_message = "The variable role_path must begin and end with a slash."
  }
}

variable "reserve_concurrency" {
  description = <<-EOT
    Whether to reserve maximum_concurrency of the account's concurrency for the function. Lambda
    refuses it if fewer than 100 executions of the account would be left for all other functions.
  EOT
  type        = bool
  default     = false
  nullable    = false
}

variable "deployment" {
  description = <<-EOT
    How CodeDeploy moves messages to a new version of the function, for example
    Canary10Percent5Minutes. Alarms roll it back. Empty: an apply updates the function at once.
  EOT
  type        = string
  default     = ""
  nullable    = false

  validation {
    condition     = length(regexall("^(AllAtOnce|Canary10Percent(5|10|15|30)Minutes|Linear10PercentEvery(1Minute|2Minutes|3Minutes|10Minutes))?$", var.deployment)) > 0
    error_message = "The variable deployment must be AllAtOnce, Canary10PercentNMinutes with 5, 10, 15 or 30, Linear10PercentEvery1Minute, Linear10PercentEveryNMinutes with 2, 3 or 10, or empty."
  }
}

variable "enforce_tls" {
  description = "Whether the policies of the queues, and of the topic for alarm_email, refuse requests without TLS."
  type        = bool
  default     = false
  nullable    = false
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

variable "tracing" {
  description = "Whether X-Ray traces the function."
  type        = bool
  default     = false
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

variable "mapping_metrics" {
  description = "Whether the event source mapping counts its events in CloudWatch, which bills these metrics."
  type        = bool
  default     = false
  nullable    = false
}
