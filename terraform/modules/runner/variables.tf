variable "fleet" {
  type        = string
  description = "Name of the fleet, as `fleet` of fleet.yaml."

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$", var.fleet))
    error_message = "fleet must have 1 to 32 lower-case letters, digits and hyphens, and begin and end with a letter or digit, such as \"ci-gpu\"."
  }
}

variable "region" {
  type        = string
  description = "The region. It is in the names of roles, because an account has the same roles in all regions."

  validation {
    condition     = can(regex("^[a-z]{2,}(-[a-z]+)+-[0-9]$", var.region))
    error_message = "region must be the name of an AWS region, such as \"us-east-1\"."
  }
}

variable "vpc_id" {
  type        = string
  description = "The VPC of the machines."

  validation {
    condition     = can(regex("^vpc-[0-9a-f]+$", var.vpc_id))
    error_message = "vpc_id must be the ID of a VPC, such as \"vpc-0123456789abcdef0\"."
  }
}

variable "account_id" {
  type        = string
  default     = null
  description = "The AWS account, for the grants of `disk_key_arns`."

  validation {
    condition     = var.account_id == null || can(regex("^[0-9]{12}$", var.account_id))
    error_message = "account_id must have 12 digits."
  }
  validation {
    condition     = var.account_id != null || length(var.disk_key_arns) == 0
    error_message = "disk_key_arns needs account_id: spot's role is a role of this account."
  }
}

variable "egress_cidrs" {
  type        = set(string)
  default     = ["0.0.0.0/0"]
  description = "The addresses to which machines may connect. They need GitHub and the controller, and jobs usually need the internet."

  validation {
    condition     = alltrue([for one in var.egress_cidrs : can(cidrhost(one, 0))])
    error_message = "egress_cidrs must be CIDR blocks, such as \"10.0.0.0/8\"."
  }
}

variable "efa" {
  type        = bool
  default     = false
  description = "Allow all traffic between the machines of the group, which Elastic Fabric Adapters need."
}

variable "policy_arns" {
  type        = map(string)
  default     = {}
  description = "Policies of the machines' role, by a name of your choice. Every job can use them."

  validation {
    condition     = length(var.policy_arns) == 0 || var.permissions_boundary_arn != null
    error_message = "policy_arns needs permissions_boundary_arn: the module's own boundary allows nothing."
  }
}

variable "permissions_boundary_arn" {
  type        = string
  default     = null
  description = "The permissions boundary of the machines' role. By default the module creates one that allows nothing."

  validation {
    condition     = var.permissions_boundary_arn == null || can(regex("^arn:[^:]+:iam::[^:]*:policy/.+$", var.permissions_boundary_arn))
    error_message = "permissions_boundary_arn must be the ARN of a managed policy."
  }
}

variable "disk_key_arns" {
  type        = map(string)
  default     = {}
  description = "Customer-managed KMS keys of the machines' disks, by a name of your choice. Spot's service-linked role gets a grant for each."

  validation {
    condition     = alltrue([for one in values(var.disk_key_arns) : can(regex("^arn:[^:]+:kms:[^:]+:[0-9]{12}:key/.+$", one))])
    error_message = "disk_key_arns must be ARNs of KMS keys, not of aliases."
  }
}

variable "create_spot_role" {
  type        = bool
  default     = false
  description = "Create the service-linked role AWSServiceRoleForEC2Spot. An account has at most one. `aws iam get-role --role-name AWSServiceRoleForEC2Spot` shows whether it exists."
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
