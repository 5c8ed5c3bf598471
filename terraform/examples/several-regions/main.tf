# One controller for machines in two regions. Everything of a region is in the module `region`, beside this file; the
# controller is in the first region, and a second one needs only another provider and another call.

terraform {
  required_version = ">= 1.9"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.100"
    }
  }
}

provider "aws" {
  region = "us-east-1"
}

provider "aws" {
  alias  = "us_west_2"
  region = "us-west-2"
}

variable "fleet" {
  type        = string
  description = "Name of the fleet."
}

variable "domain_name" {
  type        = string
  description = "The name under which machines and GitHub reach the controller."
}

variable "certificate_arn" {
  type        = string
  description = "The ACM certificate of `domain_name`, in us-east-1."
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

variable "secret_arns" {
  type        = any
  description = "The secrets of the controller, as the module `controller` takes them."
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
  description = "The kinds of runners; their providers are us-east-1 and us-west-2."
}

locals {
  instance_types = toset(flatten([for sku in values(var.skus) : [for option in sku.on : option.instance_types]]))
}

module "us_east_1" {
  source         = "./region"
  fleet          = var.fleet
  instance_types = local.instance_types
}

module "us_west_2" {
  source         = "./region"
  fleet          = var.fleet
  instance_types = local.instance_types
  cidr           = "10.65.0.0/16"
  providers = {
    aws = aws.us_west_2
  }
}

module "controller" {
  source                   = "../../modules/controller"
  fleet                    = var.fleet
  vpc_id                   = module.us_east_1.vpc_id
  subnet_id                = module.us_east_1.private_subnet_ids[0]
  load_balancer_subnet_ids = module.us_east_1.public_subnet_ids
  domain_name              = var.domain_name
  certificate_arn          = var.certificate_arn
  image                    = var.image
  secret_arns              = var.secret_arns
  machine_cidrs            = concat(module.us_east_1.nat_addresses, module.us_west_2.nat_addresses, var.operator_cidrs)
  policy_arns = {
    us-east-1 = module.us_east_1.policy_arn
    us-west-2 = module.us_west_2.policy_arn
  }
}

module "runner_us_east_1" {
  source = "../../modules/runner"
  fleet  = var.fleet
  region = "us-east-1"
  vpc_id = module.us_east_1.vpc_id

  depends_on = [module.us_east_1, module.controller]
}

module "runner_us_west_2" {
  source = "../../modules/runner"
  fleet  = var.fleet
  region = "us-west-2"
  vpc_id = module.us_west_2.vpc_id
  providers = {
    aws = aws.us_west_2
  }

  depends_on = [module.us_west_2, module.controller]
}

module "fleet" {
  source     = "../../modules/fleet"
  fleet      = var.fleet
  bucket     = module.controller.bucket
  public_url = module.controller.public_url
  github     = var.github
  limits     = var.limits
  skus       = var.skus
  providers_ec2 = {
    us-east-1 = {
      region             = "us-east-1"
      subnets            = module.us_east_1.private_subnet_ids
      interruption_queue = module.us_east_1.queue_url
      security_groups    = [module.runner_us_east_1.security_group_id]
      instance_profile   = module.runner_us_east_1.instance_profile
    }
    us-west-2 = {
      region             = "us-west-2"
      subnets            = module.us_west_2.private_subnet_ids
      interruption_queue = module.us_west_2.queue_url
      security_groups    = [module.runner_us_west_2.security_group_id]
      instance_profile   = module.runner_us_west_2.instance_profile
    }
  }
}

output "fleet_yaml" {
  description = "The content of fleet.yaml."
  value       = module.fleet.fleet_yaml
}

output "webhook_url" {
  description = "The webhook URL of the GitHub App."
  value       = module.controller.webhook_url
}

output "load_balancer_dns_name" {
  description = "The target of the DNS record of `domain_name`."
  value       = module.controller.load_balancer_dns_name
}
