# The template's parameters. infra/draw writes this file from infra/deployment.json; options.tf has further variables.

# Target

variable "target_url" {
  description = "URL to which the function sends each message. Give either this or target_function."
  type        = string
  default     = ""
  nullable    = false
  validation {
    condition     = length(regexall("^(https?://[^/].*)?$", var.target_url)) > 0
    error_message = "The variable target_url must be an https URL; http is for localhost, or with allow_http, or empty."
  }
}

variable "target_function" {
  description = "Your existing function, which the function of this deployment invokes with the messages: name, name:alias or ARN. The function must not have an event source mapping for this queue. Give either this or target_url."
  type        = string
  default     = ""
  nullable    = false
  validation {
    condition     = length(regexall("^((arn:aws[a-z-]*:lambda:[a-z0-9-]+:[0-9]{12}:function:)?[A-Za-z0-9_-]{1,64}(:(\\$LATEST|[A-Za-z0-9_-]{1,128}))?)?$", var.target_function)) > 0
    error_message = "The variable target_function must be the name of a function, name:alias, or its ARN, or empty."
  }
}

variable "messages_per_call" {
  description = "Most messages in one invocation of target_function."
  type        = number
  default     = 10
  nullable    = false
  validation {
    condition     = var.messages_per_call >= 1 && var.messages_per_call <= 10000 && floor(var.messages_per_call) == var.messages_per_call
    error_message = "The variable messages_per_call must be a whole number from 1 to 10000."
  }
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
  description = "Content-Type of messages without the attribute Body.ContentType, such as text/csv. Empty: the body decides."
  type        = string
  default     = ""
  nullable    = false
  validation {
    condition     = length(regexall("^([^/\\s]+/[^/\\s].*)?$", var.content_type)) > 0
    error_message = "The variable content_type must be a media type, for example text/csv, or empty."
  }
}

variable "message_timeout" {
  description = "Seconds that the endpoint may take for one message: at most function_timeout minus 5; if function_timeout is below 20, at most three quarters of it. With target_function, that function's own timeout counts instead."
  type        = number
  default     = 10
  nullable    = false
  validation {
    condition     = var.message_timeout >= 0.001 && var.message_timeout <= 890
    error_message = "The variable message_timeout must be from 0.001 to 890."
  }
}

variable "message_concurrency" {
  description = "Most requests, or invocations of target_function, at a time for one batch."
  type        = number
  default     = 10
  nullable    = false
  validation {
    condition     = var.message_concurrency >= 1 && var.message_concurrency <= 1000 && floor(var.message_concurrency) == var.message_concurrency
    error_message = "The variable message_concurrency must be a whole number from 1 to 1000."
  }
}

# Headers and secrets

variable "headers" {
  description = "Headers of every request. Terraform's state and the function's configuration show them. So give the ARN of a secret instead of its value, and list the secret in secret_arns or parameter_arns. For example { Authorization = \"Bearer arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders-AbCdEf:token::\" }."
  type        = map(string)
  default     = {}
  nullable    = false
  sensitive   = true
}

variable "attribute_headers" {
  description = "Message attributes to send as headers, such as { tenant = \"X-Tenant\" }."
  type        = map(string)
  default     = {}
  nullable    = false
  validation {
    condition     = alltrue([for key, value in var.attribute_headers : length(regexall("^([\\w.-]+=[^\\s,=]+)$", "${key}=${value}")) > 0])
    error_message = "The variable attribute_headers must be a map from attributes to headers, without spaces, commas and equals signs."
  }
}

variable "signing_secret" {
  description = "Signs every request by Standard Webhooks. Give the ARN of a secret in secret_arns or parameter_arns, or the secret itself: whsec_ and 24 to 64 bytes in base64. During a rotation, give both secrets, separated by a space. Empty: no signature."
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
  description = "Client certificate for mutual TLS, with client_key. Give the ARN of a secret with it in PEM, or the PEM itself; all settings together may have 4 KB. Empty: none."
  type        = string
  default     = ""
  nullable    = false
  validation {
    condition     = length(regexall("^(arn:\\S+|-----BEGIN CERTIFICATE-----[\\s\\S]+)?$", var.client_certificate)) > 0
    error_message = "The variable client_certificate must be a certificate in PEM, or the ARN of a secret, or empty."
  }
}

variable "client_key" {
  description = "Private key of client_certificate. Give the ARN of a secret with it in PEM, unencrypted, and list the secret in secret_arns or parameter_arns; or give the PEM itself."
  type        = string
  default     = ""
  nullable    = false
  sensitive   = true
  validation {
    condition     = length(regexall("^(arn:\\S+|-----BEGIN ((RSA|EC) )?PRIVATE KEY-----[\\s\\S]+)?$", var.client_key)) > 0
    error_message = "The variable client_key must be a private key in PEM, not encrypted, or the ARN of a secret, or empty."
  }
}

variable "secret_arns" {
  description = "ARN of each secret that a setting refers to, with the final hyphen and six characters, without :json-key:version-stage:version-id."
  type        = list(string)
  default     = []
  nullable    = false
  validation {
    condition     = alltrue([for item in var.secret_arns : length(regexall("^(arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@!-]+-[A-Za-z0-9]{6})$", item)) > 0])
    error_message = "The variable secret_arns must be whole ARNs of secrets, without :json-key:version-stage:version-id."
  }
}

variable "parameter_arns" {
  description = "ARN of each SSM parameter that a setting refers to. Leave out :version or :label here, even if the setting has it."
  type        = list(string)
  default     = []
  nullable    = false
  validation {
    condition     = alltrue([for item in var.parameter_arns : length(regexall("^(arn:aws[a-z-]*:ssm:[a-z0-9-]+:[0-9]{12}:parameter/[A-Za-z0-9/_.-]+)$", item)) > 0])
    error_message = "The variable parameter_arns must be ARNs of parameters, without :version or :label."
  }
}

variable "secret_kms_key_arn" {
  description = "ARN of your KMS key for these secrets and parameters. Empty: AWS manages the keys."
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
  description = "The retry policy as one JSON document, such as {\"preset\":\"critical\"}, or the ARN of a parameter with it in parameter_arns. Empty: the built-in policy \"standard\"."
  type        = string
  default     = ""
  nullable    = false
}

variable "scope" {
  description = "Divides messages into scopes; a pause or an open circuit stops only its own scope. Give the name of a message attribute, such as tenant, or MessageGroupId for the message group, or a JSON pointer into the body, such as /account/id. Empty: one scope."
  type        = string
  default     = ""
  nullable    = false
  validation {
    condition     = length(regexall("^([A-Za-z0-9_.-]+|/.*)?$", var.scope)) > 0
    error_message = "The variable scope must be the name of a message attribute, or a JSON pointer such as /account/id, or empty."
  }
}

variable "shared_table" {
  description = "dynamodb creates a table that all execution environments share. A rateLimit of the policy then holds for all environments together, and its idempotency needs the table. The batching_window is then at least 1 second, except with fifo. none: each environment keeps its own state."
  type        = string
  default     = "none"
  nullable    = false
  validation {
    condition     = contains(["none", "dynamodb"], var.shared_table)
    error_message = "The variable shared_table must be one of none, dynamodb."
  }
}

variable "strategy" {
  description = "How a message waits for its retry: as a delayed copy (copy), or in flight until its visibility timeout ends (visibility, always with fifo). In flight, every receive counts as a retry; see max_receive_count."
  type        = string
  default     = "copy"
  nullable    = false
  validation {
    condition     = contains(["copy", "visibility"], var.strategy)
    error_message = "The variable strategy must be one of copy, visibility."
  }
}

variable "dead_letter_mode" {
  description = "How a dead-lettered message reaches the dead-letter queue. annotate: Requeue replaces it by a copy with the reason, which SQS moves. redrive: SQS moves the unchanged message after max_receive_count receives. direct: the function sends a copy with the reason there."
  type        = string
  default     = "annotate"
  nullable    = false
  validation {
    condition     = contains(["annotate", "redrive", "direct"], var.dead_letter_mode)
    error_message = "The variable dead_letter_mode must be one of annotate, redrive, direct."
  }
}

variable "mode" {
  description = "requeue retries failed messages. report, for emergencies, only classifies and logs failures."
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
  description = "MB of memory. More memory gives more processor time."
  type        = number
  default     = 256
  nullable    = false
  validation {
    condition     = var.memory_size >= 128 && var.memory_size <= 10240 && floor(var.memory_size) == var.memory_size
    error_message = "The variable memory_size must be a whole number from 128 to 10240."
  }
}

variable "function_timeout" {
  description = "Seconds that one batch may take. The queue's visibility timeout follows from it. Lower it in steps, each to at least a sixth of the value before."
  type        = number
  default     = 60
  nullable    = false
  validation {
    condition     = var.function_timeout >= 1 && var.function_timeout <= 900 && floor(var.function_timeout) == var.function_timeout
    error_message = "The variable function_timeout must be a whole number from 1 to 900."
  }
}

variable "batch_size" {
  description = "Most messages in one invocation; more than 10 need a batching_window."
  type        = number
  default     = 10
  nullable    = false
  validation {
    condition     = var.batch_size >= 1 && var.batch_size <= 10000 && floor(var.batch_size) == var.batch_size
    error_message = "The variable batch_size must be a whole number from 1 to 10000."
  }
}

variable "batching_window" {
  description = "Seconds that Lambda gathers a batch; 0 with fifo."
  type        = number
  default     = 0
  nullable    = false
  validation {
    condition     = var.batching_window >= 0 && var.batching_window <= 300 && floor(var.batching_window) == var.batching_window
    error_message = "The variable batching_window must be a whole number from 0 to 300."
  }
}

variable "maximum_concurrency" {
  description = "Most batches at a time, each with up to message_concurrency calls."
  type        = number
  default     = 10
  nullable    = false
  validation {
    condition     = var.maximum_concurrency >= 2 && var.maximum_concurrency <= 1000 && floor(var.maximum_concurrency) == var.maximum_concurrency
    error_message = "The variable maximum_concurrency must be a whole number from 2 to 1000."
  }
}

variable "maximum_pollers" {
  description = "Provisioned mode: most event pollers, each with up to ten batches, and billed by the hour. maximum_concurrency then does not count. 0: none."
  type        = number
  default     = 0
  nullable    = false
  validation {
    condition     = var.maximum_pollers >= 0 && var.maximum_pollers <= 10000 && floor(var.maximum_pollers) == var.maximum_pollers
    error_message = "The variable maximum_pollers must be a whole number from 0 to 10000."
  }
}

variable "minimum_pollers" {
  description = "Pollers that are always ready in provisioned mode."
  type        = number
  default     = 2
  nullable    = false
  validation {
    condition     = var.minimum_pollers >= 2 && var.minimum_pollers <= 200 && floor(var.minimum_pollers) == var.minimum_pollers
    error_message = "The variable minimum_pollers must be a whole number from 2 to 200."
  }
}

variable "reserve_concurrency" {
  description = "Whether Lambda reserves maximum_concurrency, or ten for each of maximum_pollers, of the account's concurrency for the function. Lambda refuses it if fewer than 100 executions of the account would be left for all other functions."
  type        = bool
  default     = false
  nullable    = false
}

variable "log_retention_days" {
  description = "Days that CloudWatch keeps the log."
  type        = number
  default     = 30
  nullable    = false
  validation {
    condition     = contains([1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653], var.log_retention_days)
    error_message = "The variable log_retention_days must be one of 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653."
  }
}

# Network and role

variable "subnet_ids" {
  description = "Subnets with a route to the target (target_function: to Lambda), SQS and the services of the secrets. Empty: no VPC."
  type        = list(string)
  default     = []
  nullable    = false
  validation {
    condition     = alltrue([for item in var.subnet_ids : length(regexall("^(subnet-[0-9a-f]+)$", item)) > 0])
    error_message = "The variable subnet_ids must be ids of subnets."
  }
}

variable "security_group_ids" {
  description = "Security groups in the VPC, which allow TCP to port 443."
  type        = list(string)
  default     = []
  nullable    = false
  validation {
    condition     = alltrue([for item in var.security_group_ids : length(regexall("^(sg-[0-9a-f]+)$", item)) > 0])
    error_message = "The variable security_group_ids must be ids of security groups."
  }
}

variable "permissions_boundary_arn" {
  description = "ARN of the permissions boundary of each role of the deployment. Empty: none."
  type        = string
  default     = ""
  nullable    = false
  validation {
    condition     = length(regexall("^(arn:aws[a-z-]*:iam::([0-9]{12}|aws):policy/.+)?$", var.permissions_boundary_arn)) > 0
    error_message = "The variable permissions_boundary_arn must be the ARN of a policy, or empty."
  }
}

# Queue

variable "fifo" {
  description = "Whether both queues are FIFO queues. Then set dead_letter_mode to direct, or to redrive for dead letters without reasons, and see max_receive_count. A plan with a change fails, since new queues would replace these and their messages."
  type        = bool
  default     = false
  nullable    = false
}

variable "message_retention_period" {
  description = "Seconds that SQS keeps a message after its last send. Each copy is a new send; with fifo or strategy visibility, a retry sends nothing. Keep the period at least 900 above the policy's longest totalTimeoutSeconds. In the dead-letter queue, the 14 days also count from the last send; if SQS moves a message on a FIFO queue, they count from the move. If you lower the period, SQS permanently deletes older messages. So first look at ApproximateAgeOfOldestMessage."
  type        = number
  default     = 604800
  nullable    = false
  validation {
    condition     = var.message_retention_period >= 60 && var.message_retention_period <= 1209600 && floor(var.message_retention_period) == var.message_retention_period
    error_message = "The variable message_retention_period must be a whole number from 60 to 1209600."
  }
}

variable "max_receive_count" {
  description = "Receives after which SQS moves a message to the dead-letter queue; AWS recommends at least 5. With strategy copy, it bounds receives without a response (timeout, throttle): a retry is a new message. With fifo or strategy visibility, each receive is a retry. Then set it above the policy's maxRetries, on a FIFO queue in batches to twice that number, and dead_letter_mode to direct. With dead_letter_mode annotate, keep it at 10 or below: SQS moves a dead-lettered message only after that many receives. Ten of these come at once, and the later ones once in each visibility timeout."
  type        = number
  default     = 5
  nullable    = false
  validation {
    condition     = var.max_receive_count >= 5 && var.max_receive_count <= 1000 && floor(var.max_receive_count) == var.max_receive_count
    error_message = "The variable max_receive_count must be a whole number from 5 to 1000."
  }
}

variable "kms_key_arn" {
  description = "ARN of your KMS key for both queues, and for the table of shared_table. Empty: AWS manages the keys. Producers need kms:GenerateDataKey and kms:Decrypt on it. With a topic, its policy must allow both to sns.amazonaws.com. Before a change, see other_kms_key_arns."
  type        = string
  default     = ""
  nullable    = false
  validation {
    condition     = length(regexall("^(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+)?$", var.kms_key_arn)) > 0
    error_message = "The variable kms_key_arn must be the ARN of a key (not of an alias), or empty."
  }
}

variable "other_kms_key_arns" {
  description = "ARNs of other KMS keys that the function may use for the queues. Before kms_key_arn changes, give the next key here. Afterwards give the previous one, until no message is left that it encrypts."
  type        = list(string)
  default     = []
  nullable    = false
  validation {
    condition     = alltrue([for item in var.other_kms_key_arns : length(regexall("^(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+)$", item)) > 0])
    error_message = "The variable other_kms_key_arns must be ARNs of keys (not of aliases)."
  }
}

# Monitoring

variable "monitoring" {
  description = "Alarms and dashboard. A month costs about 1 USD for the eight alarms, and 3 USD for a dashboard beyond the account's first three."
  type        = string
  default     = "alarms-and-dashboard"
  nullable    = false
  validation {
    condition     = contains(["alarms-and-dashboard", "alarms", "none"], var.monitoring)
    error_message = "The variable monitoring must be one of alarms-and-dashboard, alarms, none."
  }
}

variable "max_queue_depth" {
  description = "An alarm fires when more messages than this wait to be received; those that wait for a retry do not count."
  type        = number
  default     = 5000
  nullable    = false
  validation {
    condition     = var.max_queue_depth >= 0
    error_message = "The variable max_queue_depth must be at least 0."
  }
}

variable "max_message_age_seconds" {
  description = "An alarm fires when a message is older, retries included. Raise it for a policy with longer waits, such as a daily quota."
  type        = number
  default     = 900
  nullable    = false
  validation {
    condition     = var.max_message_age_seconds >= 60
    error_message = "The variable max_message_age_seconds must be at least 60."
  }
}

variable "alarm_email" {
  description = "E-mail address that alarms notify. Its owner must confirm a first mail, also after a change. Without this and alarm_topic_arn, alarms only change state."
  type        = string
  default     = ""
  nullable    = false
  validation {
    condition     = length(regexall("^([^@\\s]+@[^@\\s]+)?$", var.alarm_email)) > 0
    error_message = "The variable alarm_email must be an e-mail address, or empty."
  }
}

variable "alarm_topic_arn" {
  description = "ARN of an SNS topic that alarms notify. Its policy must allow sns:Publish to cloudwatch.amazonaws.com. An encrypted topic needs your own KMS key, whose policy allows that service kms:Decrypt and kms:GenerateDataKey*. Empty: none."
  type        = string
  default     = ""
  nullable    = false
  validation {
    condition     = length(regexall("^(arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+)?$", var.alarm_topic_arn)) > 0
    error_message = "The variable alarm_topic_arn must be the ARN of a standard topic, or empty."
  }
}

variable "runbook_url" {
  description = "Address of your copy of the runbook. Every alarm's description ends with it and the alarm's section. The default is the page in Requeue's repository."
  type        = string
  default     = "docs/operate/runbook.md"
  nullable    = false
  validation {
    condition     = length(var.runbook_url) <= 290
    error_message = "The variable runbook_url must have at most 290 characters."
  }
}
