mock_provider "aws" {
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }
  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }
  mock_data "aws_region" {
    defaults = { name = "us-east-1" }
  }
  mock_data "aws_iam_policy_document" {
    defaults = { json = "{}" }
  }
  mock_data "aws_ec2_instance_type_offerings" {
    defaults = { locations = ["us-east-1a", "us-east-1b"] }
  }
  mock_resource "aws_vpc" {
    defaults = { id = "vpc-0000000000000000e" }
  }
  mock_resource "aws_eip" {
    defaults = { public_ip = "192.0.2.1" }
  }
  mock_resource "aws_security_group" {
    defaults = { id = "sg-0000000000000000e" }
  }
  mock_resource "aws_sqs_queue" {
    defaults = {
      arn = "arn:aws:sqs:us-east-1:123456789012:ci-gpu-interruptions"
      url = "https://sqs.us-east-1.amazonaws.com/123456789012/ci-gpu-interruptions"
    }
  }
  mock_resource "aws_iam_policy" {
    defaults = { arn = "arn:aws:iam::123456789012:policy/ci-gpu-controller-us-east-1" }
  }
  mock_resource "aws_ebs_volume" {
    defaults = { arn = "arn:aws:ec2:us-east-1:123456789012:volume/vol-0123456789abcdef0" }
  }
  mock_resource "aws_s3_bucket" {
    defaults = { id = "ci-gpu-1", arn = "arn:aws:s3:::ci-gpu-1" }
  }
  mock_resource "aws_launch_template" {
    defaults = { id = "lt-0123456789abcdef0", latest_version = 1 }
  }
  mock_resource "aws_lb" {
    defaults = { arn = "arn:aws:elasticloadbalancing:us-east-1:123456789012:loadbalancer/net/ci-gpu/1" }
  }
  mock_resource "aws_lb_target_group" {
    defaults = { arn = "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/ci-gpu/1" }
  }
  mock_resource "aws_cloudwatch_log_group" {
    defaults = { arn = "arn:aws:logs:us-east-1:123456789012:log-group:/gpu-runner-autoscaler/ci-gpu" }
  }
  mock_resource "aws_db_instance" {
    defaults = {
      arn                = "arn:aws:rds:us-east-1:123456789012:db:ci-gpu-store"
      address            = "ci-gpu-store.example.us-east-1.rds.amazonaws.com"
      resource_id        = "db-ABCDEFGHIJKL01234"
      master_user_secret = [{ secret_arn = "arn:aws:secretsmanager:us-east-1:123456789012:secret:rds", kms_key_id = "", secret_status = "active" }]
    }
  }
}

override_resource {
  target = module.network.aws_subnet.private["us-east-1a"]
  values = { id = "subnet-0000000000000000a" }
}

override_resource {
  target = module.network.aws_subnet.private["us-east-1b"]
  values = { id = "subnet-0000000000000000b" }
}

override_data {
  target = module.controller.data.aws_subnet.host
  values = { availability_zone = "us-east-1a" }
}

override_data {
  target = module.controller.data.aws_subnet.second
  values = { availability_zone = "us-east-1b" }
}

variables {
  fleet           = "ci-gpu"
  region          = "us-east-1"
  domain_name     = "fleet.example.com"
  certificate_arn = "arn:aws:acm:us-east-1:123456789012:certificate/1"
  image           = "registry.example.com/gpu-runner-autoscaler:0.1.0"
  github          = { app_id = 1234, scopes = [{ org = "acme", runner_group = "gpu" }] }
  limits          = { machines = 10 }
  skus = {
    "linux.g5" = {
      on    = [{ provider = "us-east-1", instance_types = ["g5.xlarge"] }]
      image = { name = "autoscaler/linux-gpu-x64-*", owner = "self" }
    }
  }
  secret_arns = {
    github_app_private_key = "arn:aws:secretsmanager:us-east-1:123456789012:secret:app-1"
    webhook_secret         = "arn:aws:secretsmanager:us-east-1:123456789012:secret:hook-1"
    admin_token            = "arn:aws:secretsmanager:us-east-1:123456789012:secret:admin-1"
    metrics_token          = "arn:aws:secretsmanager:us-east-1:123456789012:secret:metrics-1"
  }
  replicas = {
    certificate_secret_arn = "arn:aws:secretsmanager:us-east-1:123456789012:secret:hosts-1"
    database_ca_file       = "tests/database-ca.pem"
  }
}

run "two_hosts_use_the_database" {
  command = apply

  assert {
    condition     = yamldecode(output.fleet_yaml).store == module.database[0].store_of_hosts
    error_message = "The store of fleet.yaml must be the database."
  }
  assert {
    condition     = output.database_address == "ci-gpu-store.example.us-east-1.rds.amazonaws.com" && endswith(output.database_master_user_secret_arn, ":secret:rds")
    error_message = "An operator needs both to create the role."
  }
  assert {
    condition     = !contains(module.observability.alarm_names, "ci-gpu-backups-stopped")
    error_message = "No host makes backups."
  }
}
