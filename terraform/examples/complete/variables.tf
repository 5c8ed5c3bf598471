variable "fleet" {
  type        = string
  description = "Name of the fleet."
}

variable "region" {
  type        = string
  description = "The AWS region."
}

variable "max_zones" {
  type        = number
  default     = 3
  description = "Maximum number of zones."
}

variable "zones" {
  type        = list(string)
  default     = []
  description = "The zones to use, in place of those that the module `network` chooses."
}

variable "domain_name" {
  type        = string
  description = "The name under which machines and GitHub reach the controller."
}

variable "certificate_arn" {
  type        = string
  description = "The ACM certificate of `domain_name`."
}

variable "zone_id" {
  type        = string
  default     = null
  description = "The Route 53 zone for the record of `domain_name`. By default, you create the record."
}

variable "operator_cidrs" {
  type        = list(string)
  default     = []
  description = "The addresses from which operators and Prometheus connect to port 8443."
}

variable "image" {
  type        = string
  description = "The container image of the controller."
}

variable "ecr_repository_arns" {
  type        = list(string)
  default     = []
  description = "The ECR repositories with `image`, if it is in ECR."
}

variable "secret_arns" {
  type = object({
    github_app_private_key = string
    webhook_secret         = string
    admin_token            = string
    metrics_token          = string
  })
  description = "The secrets of the controller in Secrets Manager."
}

variable "github" {
  type        = any
  description = "The GitHub App and its scopes, as the module `fleet` takes them."
}

variable "limits" {
  type        = any
  description = "Limits of the fleet, as the module `fleet` takes them."
}

variable "skus" {
  type        = any
  description = "The kinds of runners: `skus` of fleet.yaml."
}

variable "replicas" {
  type = object({
    certificate_secret_arn = string
    database_ca_file       = string
  })
  default     = null
  description = "Run two hosts with a database of RDS: the secret with the hosts' certificate and its private key, and a file with Amazon's CA certificates. By default, there is one host with its store on a volume."
}

variable "create_spot_role" {
  type        = bool
  default     = false
  description = "Create spot's service-linked role, if the account does not have it yet."
}

variable "destroy_data" {
  type        = bool
  default     = false
  description = "Let `destroy` delete the store and all backups."
}

variable "alarm_actions" {
  type        = list(string)
  default     = []
  description = "ARNs of the SNS topics that CloudWatch notifies when an alarm starts and ends."
}

variable "builder_arns" {
  type        = list(string)
  default     = []
  description = "ARNs of the roles and users that may build machine images. By default, there is no build role."
}

variable "image_account_ids" {
  type        = set(string)
  default     = []
  description = "Other accounts that may launch machines from `image_ids`, if there are `builder_arns`."
}

variable "image_ids" {
  type        = set(string)
  default     = []
  description = "The machine images for `image_account_ids`."
}

variable "disk_key_arns" {
  type        = map(string)
  default     = {}
  description = "Customer-managed KMS keys of the machines' disks, by a name of your choice. The controller and spot's service-linked role may use them."
}

variable "tags" {
  type        = map(string)
  default     = {}
  description = "Tags of everything that Terraform creates."
}
