variable "fleet" {
  type        = string
  description = "Name of the fleet, in the names of runners and the tags of machines."

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,19}[a-z0-9])?$", var.fleet)) && !startswith(var.fleet, "internal-")
    error_message = "fleet must have 1 to 21 lower-case letters, digits and hyphens, and begin and end with a letter or digit, such as \"ci-gpu\", and not begin with \"internal-\"."
  }
}

variable "bucket" {
  type        = string
  description = "The controller's bucket: `bucket` of the module `controller`."
}

variable "public_url" {
  type        = string
  description = "The URL under which machines reach the controller: `public_url` of the module `controller`."

  validation {
    condition     = startswith(var.public_url, "https://")
    error_message = "public_url must begin with https://."
  }
}

variable "github" {
  type = object({
    api_url = optional(string, "https://api.github.com")
    app_id  = number
    scopes = list(object({
      org          = optional(string)
      repo         = optional(string)
      runner_group = optional(string)
      repositories = optional(list(string))
    }))
  })
  description = "The GitHub App and its scopes: `github` of fleet.yaml."

  validation {
    condition     = length(var.github.scopes) > 0
    error_message = "github needs at least one scope, such as { app_id = 1234, scopes = [{ org = \"acme\", runner_group = \"gpu\" }] }."
  }
  validation {
    condition     = alltrue([for scope in var.github.scopes : (scope.org == null) != (scope.repo == null)])
    error_message = "Each scope has either org or repo."
  }
}

variable "limits" {
  type = object({
    machines         = optional(number)
    dollars_per_hour = optional(number)
  })
  description = "Limits of the whole fleet: `limits` of fleet.yaml."

  validation {
    condition     = var.limits.machines != null || var.limits.dollars_per_hour != null
    error_message = "limits needs machines, dollars_per_hour or both: without a limit, a mistake can cost any amount."
  }
}

variable "providers_ec2" {
  type = map(object({
    region                    = string
    subnets                   = list(string)
    security_groups           = list(string)
    instance_profile          = optional(string)
    interruption_queue        = optional(string)
    rebalance_recommendations = optional(bool)
    public_ip                 = optional(bool)
    tags                      = optional(map(string))
    spot_price_factor         = optional(number)
    quotas                    = optional(map(number))
  }))
  description = "The regions by name of the provider: the keys of `ec2` in fleet.yaml."

  validation {
    condition     = length(var.providers_ec2) > 0
    error_message = "providers_ec2 must name at least one region."
  }
  validation {
    condition     = length(distinct([for one in values(var.providers_ec2) : one.region])) == length(var.providers_ec2)
    error_message = "A fleet has one provider in each region."
  }
}

variable "skus" {
  type        = any
  description = "The kinds of runners: `skus` of fleet.yaml."

  validation {
    condition     = can(keys(var.skus)) && try(alltrue([for sku in values(var.skus) : length(sku.on) > 0]), false)
    error_message = "skus must be a map of SKUs, each with at least one launch option in on."
  }
  validation {
    condition     = try(alltrue(flatten([for sku in values(var.skus) : [for option in sku.on : contains(keys(var.providers_ec2), option.provider)]])), false)
    error_message = "Each launch option must name a provider of providers_ec2."
  }
  validation {
    condition     = try(alltrue([for sku in values(var.skus) : !can(sku.boot_script_file)]), true)
    error_message = "skus must not have boot_script_file: the controller's host gets no file but fleet.yaml. Put the script into the machine image."
  }
}

variable "store" {
  type        = string
  nullable    = false
  default     = "sqlite:////var/lib/gpu-runner-autoscaler/state.db"
  description = "The store: `store` of fleet.yaml. With `replicas` of the module `controller`: `store_of_hosts` of the module `database`."

  validation {
    condition     = can(regex("^(sqlite:////[^?#[:cntrl:]]*[^/?#[:cntrl:]]|postgresql://[^:@/?#[:cntrl:]]+@[^@/?#[:cntrl:]]+/[^/?#[:cntrl:]]+(\\?[^#[:cntrl:]]*)?)$", var.store))
    error_message = "store must be an SQLite file with its whole path, such as \"sqlite:////var/lib/gpu-runner-autoscaler/state.db\", or the URL of a PostgreSQL database with a user and without a password."
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
