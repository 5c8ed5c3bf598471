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
  mock_data "aws_subnet" {
    defaults = { availability_zone = "us-east-1a" }
  }
  mock_data "aws_iam_policy_document" {
    defaults = { json = "{}" }
  }
  mock_resource "aws_ebs_volume" {
    defaults = { id = "vol-0123456789abcdef0", arn = "arn:aws:ec2:us-east-1:123456789012:volume/vol-0123456789abcdef0" }
  }
  mock_resource "aws_s3_bucket" {
    defaults = { id = "ci-gpu-1", arn = "arn:aws:s3:::ci-gpu-1" }
  }
  mock_resource "aws_launch_template" {
    defaults = { id = "lt-0123456789abcdef0", latest_version = 1 }
  }
  mock_resource "aws_lb" {
    defaults = { arn = "arn:aws:elasticloadbalancing:us-east-1:123456789012:loadbalancer/net/ci-gpu/1", zone_id = "Z1", dns_name = "ci-gpu.elb.amazonaws.com" }
  }
  mock_resource "aws_lb_target_group" {
    defaults = { arn = "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/ci-gpu/1" }
  }
  mock_resource "aws_cloudwatch_log_group" {
    defaults = { arn = "arn:aws:logs:us-east-1:123456789012:log-group:/gpu-runner-autoscaler/ci-gpu" }
  }
}

variables {
  fleet                    = "ci-gpu"
  vpc_id                   = "vpc-0123456789abcdef0"
  subnet_id                = "subnet-0123456789abcdef0"
  load_balancer_subnet_ids = ["subnet-0123456789abcdef1"]
  domain_name              = "fleet.example.com"
  certificate_arn          = "arn:aws:acm:us-east-1:123456789012:certificate/1"
  machine_cidrs            = ["10.64.0.0/16"]
  image                    = "123456789012.dkr.ecr.us-east-1.amazonaws.com/gpu-runner-autoscaler:0.1.0"
  policy_arns              = { us-east-1 = "arn:aws:iam::123456789012:policy/ci-gpu-controller-us-east-1" }
  secret_arns = {
    github_app_private_key = "arn:aws:secretsmanager:us-east-1:123456789012:secret:app-1"
    webhook_secret         = "arn:aws:secretsmanager:us-east-1:123456789012:secret:hook-1"
    admin_token            = "arn:aws:secretsmanager:us-east-1:123456789012:secret:admin-1"
    metrics_token          = "arn:aws:secretsmanager:us-east-1:123456789012:secret:metrics-1"
  }
}

run "the_data_survives_a_mistaken_destroy" {
  command = apply

  assert {
    condition     = aws_ebs_volume.store[0].final_snapshot && !aws_s3_bucket.data.force_destroy
    error_message = "By default, destroy must keep a snapshot and refuse to delete the backups."
  }
  assert {
    condition     = aws_ebs_volume.store[0].encrypted && aws_ebs_volume.store[0].availability_zone == "us-east-1a"
    error_message = "The volume must be encrypted, and in the zone of the host."
  }
}

run "there_is_one_host_and_a_new_one_comes_after_the_old_one" {
  command = apply

  assert {
    condition     = aws_autoscaling_group.controller.max_size == 1 && aws_autoscaling_group.controller.min_size == 1
    error_message = "Two hosts cannot share the store."
  }
  assert {
    condition     = aws_autoscaling_group.controller.instance_refresh[0].preferences[0].min_healthy_percentage == 0
    error_message = "An instance refresh must terminate the old host first."
  }
  assert {
    condition     = aws_launch_template.controller.metadata_options[0].http_tokens == "required" && aws_launch_template.controller.metadata_options[0].http_put_response_hop_limit == 1
    error_message = "Credentials of the host must not be within reach of a container network."
  }
}

run "a_restart_of_the_controller_does_not_replace_the_host" {
  command = plan

  assert {
    condition     = alltrue([for group in aws_lb_target_group.controller : group.health_check[0].interval * group.health_check[0].unhealthy_threshold >= 100])
    error_message = "A restart takes up to 60 s for the stop alone."
  }
}

run "only_port_443_is_open_to_the_internet" {
  command = apply

  assert {
    condition     = [for rule in aws_vpc_security_group_ingress_rule.load_balancer : rule.from_port if rule.cidr_ipv4 == "0.0.0.0/0"] == [443]
    error_message = "Only the port that serves /webhook alone may be open to all."
  }
  assert {
    condition     = alltrue([for rule in aws_vpc_security_group_ingress_rule.controller : rule.referenced_security_group_id == aws_security_group.load_balancer.id])
    error_message = "Only the load balancer may connect to the host."
  }
}

run "session_manager_may_open_sessions_and_nothing_else" {
  command = plan

  # "Create a custom IAM role for Session Manager" in the AWS Systems Manager User Guide.
  assert {
    condition = toset([
      for action in flatten([for statement in data.aws_iam_policy_document.host.statement : statement.actions]) :
      action if startswith(action, "ssm")
      ]) == toset([
      "ssm:UpdateInstanceInformation",
      "ssmmessages:CreateControlChannel",
      "ssmmessages:CreateDataChannel",
      "ssmmessages:OpenControlChannel",
      "ssmmessages:OpenDataChannel",
    ])
    error_message = "The host must have what sessions need, and no commands or parameters of Systems Manager."
  }
}

run "the_longest_name_fits_the_load_balancer" {
  command = plan
  variables {
    fleet = "a-name-of-21-letters0"
  }

  assert {
    condition     = length(aws_lb.controller.name) == 32
    error_message = "AWS allows 32 characters for the name of a load balancer."
  }
}

run "a_name_that_aws_reserves_for_load_balancers" {
  command = plan
  variables {
    fleet = "internal-ci"
  }
  expect_failures = [var.fleet]
}

run "values_that_aws_would_refuse_in_the_middle_of_an_apply" {
  command = plan
  variables {
    zone_id             = "example.com"
    ecr_repository_arns = ["123456789012.dkr.ecr.us-east-1.amazonaws.com/gpu-runner-autoscaler"]
    instance_type       = "large"
    ami_id              = "al2023"
    log_days            = 100

    permissions_boundary_arn = "boundary"
  }
  expect_failures = [var.zone_id, var.ecr_repository_arns, var.instance_type, var.ami_id, var.log_days, var.permissions_boundary_arn]
}

run "an_alias_is_not_a_key" {
  command = plan
  variables {
    secret_key_arns = ["arn:aws:kms:us-east-1:123456789012:alias/secrets"]
    volume_key_arn  = "arn:aws:kms:us-east-1:123456789012:alias/disks"
  }
  expect_failures = [var.secret_key_arns, var.volume_key_arn]
}

run "wildcards_are_refused" {
  command = plan
  variables {
    ecr_repository_arns = ["arn:aws:ecr:us-east-1:123456789012:repository/*"]
    secret_key_arns     = ["arn:aws:kms:us-east-1:123456789012:key/*"]
  }
  expect_failures = [var.ecr_repository_arns, var.secret_key_arns]
}

run "all_that_is_optional" {
  command = plan
  variables {
    zone_id             = "Z0123456789ABCDEFGHIJ"
    ecr_repository_arns = ["arn:aws:ecr:us-east-1:123456789012:repository/gpu-runner-autoscaler"]
    instance_type       = "m7i-flex.large"
    ami_id              = "ami-0123456789abcdef0"
    log_days            = 30
    secret_key_arns     = ["arn:aws:kms:us-east-1:123456789012:key/one"]
    volume_key_arn      = "arn:aws:kms:us-east-1:123456789012:key/two"

    permissions_boundary_arn = "arn:aws:iam::aws:policy/PowerUserAccess"
  }

  assert {
    condition     = aws_cloudwatch_log_group.controller.retention_in_days == 30 && length(aws_route53_record.controller) == 1
    error_message = "Accepted values must be used."
  }
}

run "mistakes_are_named_before_anything_is_made" {
  command = plan
  variables {
    fleet         = "a-name-of-22-letters01"
    domain_name   = "https://fleet.example.com"
    machine_cidrs = ["0.0.0.0/0"]
    image         = "gpu-runner-autoscaler"
    policy_arns   = {}

    webhook_cidrs  = ["2001:db8::/32"]
    backup_minutes = 1.5
  }
  expect_failures = [var.fleet, var.domain_name, var.machine_cidrs, var.image, var.policy_arns, var.webhook_cidrs, var.backup_minutes]
}

run "replicas_are_in_two_zones_and_replaced_one_by_one" {
  command = apply
  variables {
    replicas = {
      subnet_id              = "subnet-0fedcba9876543210"
      certificate_secret_arn = "arn:aws:secretsmanager:us-east-1:123456789012:secret:hosts-1"
      database_user_arn      = "arn:aws:rds-db:us-east-1:123456789012:dbuser:db-ABCDEFGHIJKL01234/autoscaler"
      database_ca_pem        = "-----BEGIN CERTIFICATE-----"
    }
  }
  override_data {
    target = data.aws_subnet.second
    values = { availability_zone = "us-east-1b" }
  }

  assert {
    condition     = aws_autoscaling_group.controller.min_size == 2 && aws_autoscaling_group.controller.vpc_zone_identifier == toset(["subnet-0123456789abcdef0", "subnet-0fedcba9876543210"])
    error_message = "There must be two hosts, one in each zone."
  }
  assert {
    condition     = aws_autoscaling_group.controller.instance_refresh[0].preferences[0].min_healthy_percentage == 100 && aws_autoscaling_group.controller.instance_refresh[0].preferences[0].max_healthy_percentage == 150
    error_message = "An instance refresh must launch a host, and terminate an old one after that."
  }
  assert {
    condition     = length(aws_ebs_volume.store) == 0 && !anytrue([for text in concat(local.files[*].path, [local.service, jsonencode(local.cloud_config.runcmd)]) : strcontains(text, "backup")])
    error_message = "The store is not on the hosts."
  }
  assert {
    condition     = strcontains(local.service, "--env-file /run/gpu-runner-autoscaler/replica.env ")
    error_message = "Each replica must say where the other one reaches it."
  }
  assert {
    condition     = [for rule in aws_vpc_security_group_ingress_rule.replicas : [rule.referenced_security_group_id == aws_security_group.controller.id, rule.from_port, rule.to_port]] == [[true, 8443, 8443]]
    error_message = "Replicas must reach one another, on one port."
  }
  assert {
    condition = { for one in data.aws_iam_policy_document.host.statement : one.sid => one.resources if contains(one.actions, "rds-db:connect") } == {
      SignInToTheDatabase = toset(["arn:aws:rds-db:us-east-1:123456789012:dbuser:db-ABCDEFGHIJKL01234/autoscaler"])
    }
    error_message = "Replicas sign in as their user alone."
  }
  assert {
    condition     = !anytrue([for action in flatten([for one in data.aws_iam_policy_document.host.statement : tolist(one.actions)]) : startswith(action, "ec2:") || contains(["s3:PutObject", "cloudwatch:PutMetricData"], action)])
    error_message = "What a volume and backups need, replicas do not."
  }
  assert {
    condition     = contains(flatten([for one in data.aws_iam_policy_document.host.statement : tolist(one.resources) if one.sid == "ReadSecrets"]), "arn:aws:secretsmanager:us-east-1:123456789012:secret:hosts-1")
    error_message = "Replicas must be able to read their certificate."
  }
}

run "replicas_in_one_zone_would_be_lost_together" {
  command = plan
  variables {
    replicas = {
      subnet_id              = "subnet-0fedcba9876543210"
      certificate_secret_arn = "arn:aws:secretsmanager:us-east-1:123456789012:secret:hosts-1"
      database_user_arn      = "arn:aws:rds-db:us-east-1:123456789012:dbuser:db-ABCDEFGHIJKL01234/autoscaler"
      database_ca_pem        = "-----BEGIN CERTIFICATE-----"
    }
  }
  expect_failures = [aws_autoscaling_group.controller]
}

run "mistakes_of_replicas_are_named" {
  command = plan
  variables {
    replicas = {
      subnet_id              = "subnet-0123456789abcdef0"
      certificate_secret_arn = "arn:aws:secretsmanager:us-east-1:123456789012:secret:*"
      database_user_arn      = "arn:aws:rds-db:us-east-1:123456789012:dbuser:*/autoscaler"
      database_ca_pem        = "database-ca.pem"
    }
  }
  expect_failures = [var.replicas]
}
