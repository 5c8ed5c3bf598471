# A fleet in one region of an empty account, with all modules.

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

data "aws_caller_identity" "here" {}

locals {
  # Every instance type of every launch option, for the choice of zones.
  instance_types = toset(flatten([for sku in values(var.skus) : [for option in sku.on : option.instance_types]]))
}

module "network" {
  source         = "../../modules/network"
  name           = var.fleet
  instance_types = local.instance_types
  max_zones      = var.max_zones
  zones          = var.zones
  tags           = var.tags
}

module "interruptions" {
  source = "../../modules/interruptions"
  fleet  = var.fleet
  tags   = var.tags
}

module "permissions" {
  source        = "../../modules/permissions"
  fleet         = var.fleet
  subnet_ids    = module.network.private_subnet_ids
  queue_arns    = [module.interruptions.queue_arn]
  disk_key_arns = values(var.disk_key_arns)
  tags          = var.tags
}

module "controller" {
  source                   = "../../modules/controller"
  fleet                    = var.fleet
  vpc_id                   = module.network.vpc_id
  subnet_id                = module.network.private_subnet_ids[0]
  load_balancer_subnet_ids = module.network.public_subnet_ids
  domain_name              = var.domain_name
  certificate_arn          = var.certificate_arn
  zone_id                  = var.zone_id
  machine_cidrs            = concat(module.network.nat_addresses, var.operator_cidrs)
  image                    = var.image
  ecr_repository_arns      = var.ecr_repository_arns
  secret_arns              = var.secret_arns
  policy_arns              = { (var.region) = module.permissions.policy_arn }
  destroy_data             = var.destroy_data
  tags                     = var.tags
  replicas = var.replicas == null ? null : {
    subnet_id              = module.network.private_subnet_ids[1]
    certificate_secret_arn = var.replicas.certificate_secret_arn
    database_ca_pem        = file(var.replicas.database_ca_file)
    database_user_arn      = module.database[0].user_arn
  }
}

module "database" {
  count                     = var.replicas == null ? 0 : 1
  source                    = "../../modules/database"
  fleet                     = var.fleet
  vpc_id                    = module.network.vpc_id
  subnet_ids                = module.network.private_subnet_ids
  client_security_group_ids = [module.controller.security_group_id]
  alarm_actions             = var.alarm_actions
  destroy_data              = var.destroy_data
  tags                      = var.tags
}

# `destroy` deletes this module's security group first of all that machines need. EC2 refuses that while a machine
# runs, so everything below stays until the fleet is drained.
module "runner" {
  source           = "../../modules/runner"
  fleet            = var.fleet
  region           = var.region
  vpc_id           = module.network.vpc_id
  account_id       = data.aws_caller_identity.here.account_id
  disk_key_arns    = var.disk_key_arns
  create_spot_role = var.create_spot_role
  tags             = var.tags

  depends_on = [module.network, module.interruptions, module.permissions, module.controller, module.database, module.observability, module.images]
}

module "fleet" {
  source     = "../../modules/fleet"
  fleet      = var.fleet
  bucket     = module.controller.bucket
  public_url = module.controller.public_url
  github     = var.github
  limits     = var.limits
  skus       = var.skus
  store      = one(module.database[*].store_of_hosts)
  tags       = var.tags
  providers_ec2 = {
    (var.region) = {
      region             = var.region
      subnets            = module.network.private_subnet_ids
      security_groups    = [module.runner.security_group_id]
      instance_profile   = module.runner.instance_profile
      interruption_queue = module.interruptions.queue_url
    }
  }
}

module "observability" {
  source                   = "../../modules/observability"
  fleet                    = var.fleet
  public_url               = module.controller.public_url
  load_balancer_arn_suffix = module.controller.load_balancer_arn_suffix
  target_group_arn_suffix  = module.controller.target_group_arn_suffix
  metrics_namespace        = module.controller.metrics_namespace
  backup_minutes           = var.replicas == null ? 5 : null
  queue_name               = module.interruptions.queue_name
  dead_letter_queue_name   = module.interruptions.dead_letter_queue_name
  alarm_actions            = var.alarm_actions
  tags                     = var.tags
}

module "images" {
  count        = length(var.builder_arns) > 0 ? 1 : 0
  source       = "../../modules/images"
  name         = var.fleet
  builder_arns = var.builder_arns
  account_ids  = var.image_account_ids
  image_ids    = var.image_ids
  tags         = var.tags
}
