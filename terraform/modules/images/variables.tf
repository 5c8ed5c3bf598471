variable "name" {
  type        = string
  description = "Name of the images, in the names of the role and the key."

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$", var.name))
    error_message = "name must have 1 to 32 lower-case letters, digits and hyphens, and begin and end with a letter or digit."
  }
}

variable "builder_arns" {
  type        = list(string)
  description = "ARNs of the roles and users that may build images: they may assume the build role."

  validation {
    condition     = length(var.builder_arns) > 0 && alltrue([for one in var.builder_arns : can(regex("^arn:[^:]+:iam::[0-9]{12}:(root|(role|user)/[A-Za-z0-9+=,.@_/-]+)$", one))])
    error_message = "builder_arns must name at least one ARN of a role or a user, and no wildcard."
  }
}

variable "account_ids" {
  type        = set(string)
  default     = []
  description = "Other accounts that may launch machines from the images."

  validation {
    condition     = alltrue([for one in var.account_ids : can(regex("^[0-9]{12}$", one))])
    error_message = "account_ids must have 12 digits each."
  }
}

variable "image_ids" {
  type        = set(string)
  default     = []
  description = "The images that other accounts may launch from."

  validation {
    condition     = alltrue([for one in var.image_ids : can(regex("^ami-[0-9a-f]+$", one))])
    error_message = "image_ids must be IDs of images, such as \"ami-0123456789abcdef0\"."
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
