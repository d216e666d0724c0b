terraform {
  required_version = ">= 1.6"

  required_providers {
    # 6.8 and later accept queues for messages of 1 MiB. 6.9 and later read the reserved concurrency
    # of a function that has versions.
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.9"
    }
  }
}

data "aws_partition" "current" {}

data "aws_region" "current" {}

data "aws_caller_identity" "current" {}
