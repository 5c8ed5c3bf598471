variable "fleet" {
  type        = string
  description = "Name of the fleet. Each fleet needs a queue of its own in each region."

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$", var.fleet))
    error_message = "fleet must have 1 to 32 lower-case letters, digits and hyphens, and begin and end with a letter or digit, such as \"ci-gpu\"."
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
