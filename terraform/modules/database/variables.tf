variable "fleet" {
  type        = string
  description = "Name of the fleet, as `fleet` of fleet.yaml."

  validation {
    condition     = can(regex("^[a-z]([a-z0-9-]{0,19}[a-z0-9])?$", var.fleet)) && !strcontains(var.fleet, "--")
    error_message = "fleet must have 1 to 21 lower-case letters, digits and single hyphens, begin with a letter and not end with a hyphen, such as \"ci-gpu\": the database is named after it."
  }
}

variable "vpc_id" {
  type        = string
  description = "The VPC of the database."

  validation {
    condition     = can(regex("^vpc-[0-9a-f]+$", var.vpc_id))
    error_message = "vpc_id must be the ID of a VPC, such as \"vpc-0123456789abcdef0\"."
  }
}

variable "subnet_ids" {
  type        = list(string)
  description = "Private subnets of the database, in at least two zones: the standby is in another one."

  validation {
    condition     = length(var.subnet_ids) >= 2 && alltrue([for one in var.subnet_ids : can(regex("^subnet-[0-9a-f]+$", one))])
    error_message = "subnet_ids must be the IDs of two subnets or more, such as \"subnet-0123456789abcdef0\"."
  }
}

variable "client_security_group_ids" {
  type        = list(string)
  description = "The security groups of the replicas: of their hosts, or of the nodes or pods of their cluster. Nothing else reaches the database."

  validation {
    condition     = length(var.client_security_group_ids) > 0 && alltrue([for one in var.client_security_group_ids : can(regex("^sg-[0-9a-f]+$", one))])
    error_message = "client_security_group_ids must be the IDs of security groups, such as \"sg-0123456789abcdef0\"."
  }
}

variable "engine_version" {
  type        = string
  default     = "17"
  description = "PostgreSQL's version, 14 or newer. RDS installs minor versions by itself."

  validation {
    condition     = can(regex("^(1[4-9]|[2-9][0-9])(\\.[0-9]+)?$", var.engine_version))
    error_message = "engine_version must be 14 or newer, such as \"17\"."
  }
}

variable "instance_class" {
  type        = string
  default     = "db.t4g.medium"
  description = "The instance class of the database and its standby."
}

variable "storage_gb" {
  type        = number
  default     = 20
  description = "GiB of storage at the start. RDS makes it larger by itself."

  validation {
    condition     = var.storage_gb >= 20
    error_message = "storage_gb must be at least 20: RDS has no smaller gp3 volumes."
  }
}

variable "max_storage_gb" {
  type        = number
  default     = 200
  description = "GiB up to which RDS makes the storage larger."

  validation {
    condition     = var.max_storage_gb >= 1.1 * var.storage_gb
    error_message = "max_storage_gb must be at least a tenth more than storage_gb: RDS refuses less."
  }
}

variable "key_arn" {
  type        = string
  default     = null
  description = "The KMS key of the storage and the backups. Default: the AWS managed key of RDS."
}

variable "backup_days" {
  type        = number
  default     = 7
  description = "Days for which RDS keeps backups: the database can be restored to any second of them."

  validation {
    condition     = var.backup_days >= 1 && var.backup_days <= 35
    error_message = "backup_days must be from 1 to 35: with 0, RDS makes no backups."
  }
}

variable "destroy_data" {
  type        = bool
  default     = false
  description = "Let `terraform destroy` delete the database, without a last snapshot."
}

variable "alarm_actions" {
  type        = list(string)
  default     = []
  description = "ARNs of the SNS topics that CloudWatch notifies when the alarm starts and ends."

  validation {
    condition     = alltrue([for one in var.alarm_actions : startswith(one, "arn:")])
    error_message = "alarm_actions must be ARNs, such as \"arn:aws:sns:us-east-1:123456789012:on-call\"."
  }
}

variable "tags" {
  type        = map(string)
  default     = {}
  description = "Tags of everything that the module creates."
}
