# What a controller that runs elsewhere, such as in Kubernetes, needs for machines in a VPC that exists: its policy, the
# queue of interruptions, and the machines' profile and group.

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
  region = var.region
}

variable "fleet" {
  type        = string
  description = "Name of the fleet."
}

variable "region" {
  type        = string
  description = "The AWS region."
}

variable "vpc_id" {
  type        = string
  description = "The VPC of the machines."
}

variable "subnet_ids" {
  type        = list(string)
  description = "The subnets of the machines."
}

module "interruptions" {
  source = "../../modules/interruptions"
  fleet  = var.fleet
}

module "permissions" {
  source     = "../../modules/permissions"
  fleet      = var.fleet
  subnet_ids = var.subnet_ids
  queue_arns = [module.interruptions.queue_arn]
}

module "runner" {
  source = "../../modules/runner"
  fleet  = var.fleet
  region = var.region
  vpc_id = var.vpc_id

  depends_on = [module.interruptions, module.permissions]
}

output "policy_arn" {
  description = "The policy for the controller's role."
  value       = module.permissions.policy_arn
}

output "provider_yaml" {
  description = "The provider in fleet.yaml."
  value = yamlencode({
    (var.region) = {
      ec2 = {
        region             = var.region
        subnets            = var.subnet_ids
        security_groups    = [module.runner.security_group_id]
        instance_profile   = module.runner.instance_profile
        interruption_queue = module.interruptions.queue_url
      }
    }
  })
}
