variable "fleet" {
  type        = string
  description = "Name of the fleet, as `fleet` of fleet.yaml. The controller may change only resources with this tag."

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$", var.fleet))
    error_message = "fleet must have 1 to 32 lower-case letters, digits and hyphens, and begin and end with a letter or digit, such as \"ci-gpu\"."
  }
}

variable "subnet_ids" {
  type        = list(string)
  description = "The subnets of the machines: `subnets` of the provider in fleet.yaml."

  validation {
    condition     = length(var.subnet_ids) > 0
    error_message = "subnet_ids must name at least one subnet."
  }
}

variable "runner_role_names" {
  type        = list(string)
  default     = null
  description = "The names of the machines' roles, which the controller may give them: those in `instance_profile`. By default, the role of the module `runner`."

  validation {
    condition     = var.runner_role_names == null ? true : alltrue([for one in var.runner_role_names : can(regex("^[A-Za-z0-9+=,.@_/-]+$", one))])
    error_message = "runner_role_names must be names of roles, without wildcards and not ARNs."
  }
}

variable "queue_arns" {
  type        = list(string)
  default     = []
  description = "The queue with EC2's events: `interruption_queue` of the provider in fleet.yaml."

  validation {
    condition     = alltrue([for one in var.queue_arns : can(regex("^arn:[^:]+:sqs:[^:]+:[0-9]{12}:[A-Za-z0-9_-]+(\\.fifo)?$", one))])
    error_message = "queue_arns must be ARNs of queues of SQS, not their URLs, and without wildcards."
  }
}

variable "disk_key_arns" {
  type        = list(string)
  default     = []
  description = "Customer-managed KMS keys of the machines' disks."

  validation {
    condition     = alltrue([for one in var.disk_key_arns : can(regex("^arn:[^:]+:kms:[^:]+:[0-9]{12}:key/[^*?]+$", one))])
    error_message = "disk_key_arns must be ARNs of KMS keys, not of aliases, and without wildcards."
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
