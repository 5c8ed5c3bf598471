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
  mock_data "aws_subnet" {
    defaults = { availability_zone = "us-east-1a" }
  }
  mock_resource "aws_vpc" {
    defaults = { id = "vpc-0000000000000000e" }
  }
  mock_resource "aws_subnet" {
    defaults = { id = "subnet-0000000000000000e" }
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
}

mock_provider "aws" {
  alias = "us_west_2"
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }
  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }
  mock_data "aws_region" {
    defaults = { name = "us-west-2" }
  }
  mock_data "aws_iam_policy_document" {
    defaults = { json = "{}" }
  }
  mock_data "aws_ec2_instance_type_offerings" {
    defaults = { locations = ["us-west-2c"] }
  }
  mock_resource "aws_vpc" {
    defaults = { id = "vpc-0000000000000000f" }
  }
  mock_resource "aws_subnet" {
    defaults = { id = "subnet-0000000000000000f" }
  }
  mock_resource "aws_eip" {
    defaults = { public_ip = "198.51.100.1" }
  }
  mock_resource "aws_security_group" {
    defaults = { id = "sg-0000000000000000f" }
  }
  mock_resource "aws_sqs_queue" {
    defaults = {
      arn = "arn:aws:sqs:us-west-2:123456789012:ci-gpu-interruptions"
      url = "https://sqs.us-west-2.amazonaws.com/123456789012/ci-gpu-interruptions"
    }
  }
  mock_resource "aws_iam_policy" {
    defaults = { arn = "arn:aws:iam::123456789012:policy/ci-gpu-controller-us-west-2" }
  }
}

variables {
  fleet           = "ci-gpu"
  domain_name     = "fleet.example.com"
  certificate_arn = "arn:aws:acm:us-east-1:123456789012:certificate/1"
  operator_cidrs  = ["203.0.113.0/24"]
  image           = "registry.example.com/gpu-runner-autoscaler:0.1.0"
  github          = { app_id = 1234, scopes = [{ org = "acme", runner_group = "gpu" }] }
  limits          = { machines = 10 }
  skus = {
    "linux.g5" = {
      on    = [for region in ["us-east-1", "us-west-2"] : { provider = region, instance_types = ["g5.xlarge"] }]
      image = { name = "autoscaler/linux-gpu-x64-*", owner = "self" }
    }
  }
  secret_arns = {
    github_app_private_key = "arn:aws:secretsmanager:us-east-1:123456789012:secret:app-1"
    webhook_secret         = "arn:aws:secretsmanager:us-east-1:123456789012:secret:hook-1"
    admin_token            = "arn:aws:secretsmanager:us-east-1:123456789012:secret:admin-1"
    metrics_token          = "arn:aws:secretsmanager:us-east-1:123456789012:secret:metrics-1"
  }
}

run "each_region_has_what_its_machines_need" {
  command = apply

  assert {
    condition = yamldecode(output.fleet_yaml).providers == {
      us-east-1 = { ec2 = {
        region             = "us-east-1"
        subnets            = ["subnet-0000000000000000e", "subnet-0000000000000000e"]
        security_groups    = ["sg-0000000000000000e"]
        instance_profile   = "ci-gpu-runner-us-east-1"
        interruption_queue = "https://sqs.us-east-1.amazonaws.com/123456789012/ci-gpu-interruptions"
      } }
      us-west-2 = { ec2 = {
        region             = "us-west-2"
        subnets            = ["subnet-0000000000000000f"]
        security_groups    = ["sg-0000000000000000f"]
        instance_profile   = "ci-gpu-runner-us-west-2"
        interruption_queue = "https://sqs.us-west-2.amazonaws.com/123456789012/ci-gpu-interruptions"
      } }
    }
    error_message = "fleet.yaml must name what is in the provider's region."
  }

  assert {
    condition     = module.us_east_1.policy_arn != module.us_west_2.policy_arn && length(module.us_west_2.nat_addresses) == 1
    error_message = "Each region has a policy for the controller, and addresses from which its machines connect."
  }
}
