variable "name" {
  type        = string
  description = "Name of the VPC, and the beginning of the names of its parts."

  validation {
    condition     = length(var.name) > 0 && length(var.name) <= 100
    error_message = "name must have 1 to 100 characters."
  }
}

variable "cidr" {
  type        = string
  default     = "10.64.0.0/16"
  description = "Addresses of the VPC. A private subnet gets an eighth of them, 8,192 of a /16."

  validation {
    condition     = can(cidrhost(var.cidr, 0)) && try(tonumber(split("/", var.cidr)[1]) >= 16 && tonumber(split("/", var.cidr)[1]) <= 21, false)
    error_message = "cidr must be an IPv4 block from /16 to /21, such as \"10.64.0.0/16\": EC2 allows no larger VPC and no smaller subnets."
  }
}

variable "instance_types" {
  type        = set(string)
  description = "The instance types of the fleet. The subnets are in zones that sell them."

  validation {
    condition     = length(var.instance_types) > 0 && alltrue([for one in var.instance_types : can(regex("^[a-z0-9-]+\\.[a-z0-9-]+$", one))])
    error_message = "instance_types must name at least one instance type, such as \"g5.xlarge\"."
  }
}

variable "max_zones" {
  type        = number
  default     = 3
  description = "Maximum number of zones. Those that sell more of the instance types come first."

  validation {
    condition     = var.max_zones >= 1 && var.max_zones <= 7 && floor(var.max_zones) == var.max_zones
    error_message = "max_zones must be a whole number from 1 to 7."
  }
}

variable "zones" {
  type        = list(string)
  default     = []
  description = "The zones to use, in order, in place of those that the module chooses. Name them once the fleet is in production: AWS can sell a type in another zone later, and the module would then choose again."

  validation {
    condition     = length(var.zones) == length(distinct(var.zones)) && length(var.zones) <= 7
    error_message = "zones must name each zone once, and at most seven zones."
  }
}

variable "nat" {
  type        = string
  default     = "single"
  description = "NAT gateways for the private subnets: `single`, `per-zone` or `none`. With `none`, add a route of your own."

  validation {
    condition     = contains(["single", "per-zone", "none"], var.nat)
    error_message = "nat must be \"single\", \"per-zone\" or \"none\"."
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
