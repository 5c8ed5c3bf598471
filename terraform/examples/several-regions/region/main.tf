# What a region has before the controller: a network, the queue of interruptions and the permissions.

terraform {
  required_version = ">= 1.9"
  required_providers {
    # tflint-ignore: terraform_unused_required_providers # a module that gets a provider from its caller declares it
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.100"
    }
  }
}

variable "fleet" {
  type        = string
  description = "Name of the fleet."
}

variable "instance_types" {
  type        = set(string)
  description = "The instance types of the fleet."
}

variable "cidr" {
  type        = string
  default     = "10.64.0.0/16"
  description = "Addresses of the VPC."
}

module "network" {
  source         = "../../../modules/network"
  name           = var.fleet
  cidr           = var.cidr
  instance_types = var.instance_types
}

module "interruptions" {
  source = "../../../modules/interruptions"
  fleet  = var.fleet
}

module "permissions" {
  source     = "../../../modules/permissions"
  fleet      = var.fleet
  subnet_ids = module.network.private_subnet_ids
  queue_arns = [module.interruptions.queue_arn]
}

output "vpc_id" {
  description = "The VPC."
  value       = module.network.vpc_id
}

output "private_subnet_ids" {
  description = "The subnets of the machines."
  value       = module.network.private_subnet_ids
}

output "public_subnet_ids" {
  description = "The subnets of a load balancer."
  value       = module.network.public_subnet_ids
}

output "nat_addresses" {
  description = "The addresses from which machines connect."
  value       = module.network.nat_addresses
}

output "queue_url" {
  description = "The queue of interruptions."
  value       = module.interruptions.queue_url
}

output "policy_arn" {
  description = "The controller's policy for the region."
  value       = module.permissions.policy_arn
}
