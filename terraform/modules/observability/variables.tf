variable "fleet" {
  type        = string
  description = "Name of the fleet."

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,19}[a-z0-9])?$", var.fleet)) && !startswith(var.fleet, "internal-")
    error_message = "fleet must have 1 to 21 lower-case letters, digits and hyphens, and begin and end with a letter or digit, such as \"ci-gpu\", and not begin with \"internal-\"."
  }
}

variable "public_url" {
  type        = string
  description = "`public_url` of the module `controller`, for Prometheus."

  validation {
    condition     = can(regex("^https://[^/]+$", var.public_url))
    error_message = "public_url must be https:// with a host and a port, such as \"https://fleet.example.com:8443\"."
  }
}

variable "load_balancer_arn_suffix" {
  type        = string
  description = "`load_balancer_arn_suffix` of the module `controller`."
}

variable "target_group_arn_suffix" {
  type        = string
  description = "`target_group_arn_suffix` of the module `controller`."
}

variable "metrics_namespace" {
  type        = string
  description = "`metrics_namespace` of the module `controller`."
}

variable "backup_minutes" {
  type        = number
  default     = 5
  description = "`backup_minutes` of the module `controller`. With its `replicas`, null: RDS makes the backups."

  validation {
    condition     = var.backup_minutes == null || try(var.backup_minutes >= 1 && var.backup_minutes <= 60 && floor(var.backup_minutes) == var.backup_minutes, false)
    error_message = "backup_minutes must be a whole number from 1 to 60."
  }
}

variable "queue_name" {
  type        = string
  description = "`queue_name` of the module `interruptions`."
}

variable "dead_letter_queue_name" {
  type        = string
  description = "`dead_letter_queue_name` of the module `interruptions`."
}

variable "alarm_actions" {
  type        = list(string)
  default     = []
  description = "ARNs of the SNS topics that CloudWatch notifies when an alarm starts and ends."

  validation {
    condition     = alltrue([for one in var.alarm_actions : startswith(one, "arn:")])
    error_message = "alarm_actions must be ARNs, such as that of an SNS topic."
  }
}

variable "tags" {
  type        = map(string)
  default     = {}
  description = "Tags of everything that the module creates."

  validation {
    condition     = alltrue([for key in keys(var.tags) : !startswith(key, "autoscaler:")])
    error_message = "Keys of tags must not begin with \"autoscaler:\": the controller may delete what has its tags."
  }
}
