mock_provider "aws" {
  mock_resource "aws_iam_policy" {
    defaults = {
      arn = "arn:aws:iam::123456789012:policy/boundary"
    }
  }
}

variables {
  fleet  = "ci-gpu"
  region = "us-east-1"
  vpc_id = "vpc-0123456789abcdef0"
}

run "machines_may_do_nothing_and_accept_no_connection" {
  command = plan

  assert {
    condition     = jsondecode(aws_iam_policy.boundary[0].policy).Statement == [{ Sid = "Nothing", Effect = "Deny", Action = "*", Resource = "*" }]
    error_message = "The boundary must deny everything."
  }
  assert {
    condition     = length(aws_iam_role_policy_attachment.runner) == 0
    error_message = "The role must have no policy by default."
  }
  assert {
    condition     = length(aws_security_group.runner.ingress) == 0
    error_message = "The security group must have no ingress by default."
  }
  assert {
    condition     = jsondecode(aws_iam_role.runner.assume_role_policy).Statement[0].Principal.Service == "ec2.amazonaws.com"
    error_message = "Only EC2 may use the role."
  }
}

run "destroy_stops_soon_at_the_group" {
  command = plan

  assert {
    condition     = aws_security_group.runner.timeouts.delete == "1m"
    error_message = "While machines run, destroy must stop at the group within a minute."
  }
}

run "machines_may_connect_to_the_given_addresses_alone" {
  command = plan
  variables {
    egress_cidrs = ["10.0.0.0/8", "2001:db8::/32"]
  }

  assert {
    condition = [for rule in aws_security_group.runner.egress : [rule.protocol, rule.cidr_blocks, rule.ipv6_cidr_blocks, rule.self]] == [
      ["-1", tolist(["10.0.0.0/8"]), tolist(["2001:db8::/32"]), false]
    ]
    error_message = "The rule must allow these addresses, in the group itself: a refused destroy leaves it."
  }
}

run "machines_that_may_connect_to_nothing" {
  command = plan
  variables {
    egress_cidrs = []
  }

  assert {
    condition     = length(aws_security_group.runner.egress) == 0
    error_message = "Without egress_cidrs there must be no rule."
  }
}

run "efa_opens_the_group_to_itself_alone" {
  command = plan
  variables {
    efa = true
  }

  assert {
    condition     = [for rule in aws_security_group.runner.ingress : [rule.protocol, rule.self, length(rule.cidr_blocks) + length(rule.security_groups)]] == [["-1", true, 0]]
    error_message = "EFA needs traffic within the group, and nothing else."
  }
  assert {
    condition     = [for rule in aws_security_group.runner.egress : rule.protocol if rule.self] == ["-1"]
    error_message = "EFA needs egress to the group itself: 0.0.0.0/0 is not enough for its traffic."
  }
}

run "spot_may_use_each_key_of_a_disk" {
  command = plan
  variables {
    account_id    = "123456789012"
    disk_key_arns = { images = "arn:aws:kms:us-east-1:210987654321:key/one" }
  }

  assert {
    condition     = aws_kms_grant.spot["images"].grantee_principal == "arn:aws:iam::123456789012:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
    error_message = "The grant is for spot's role of this account, also for a key of another one."
  }
}

run "a_policy_needs_a_boundary_that_allows_it" {
  command = plan
  variables {
    policy_arns = { cache = "arn:aws:iam::123456789012:policy/cache" }
  }
  expect_failures = [var.policy_arns]
}

run "an_alias_is_not_a_key" {
  command = plan
  variables {
    account_id    = "123456789012"
    disk_key_arns = { disks = "arn:aws:kms:us-east-1:123456789012:alias/disks" }
  }
  expect_failures = [var.disk_key_arns]
}

run "tags_cannot_make_the_controller_delete_the_module" {
  command = plan
  variables {
    tags = { "autoscaler:fleet" = "ci-gpu" }
  }
  expect_failures = [var.tags]
}

run "names_are_those_of_fleet_yaml" {
  command = plan
  variables {
    fleet  = "CI_GPU"
    vpc_id = "default"
    region = "us-east-1a"
  }
  expect_failures = [var.fleet, var.vpc_id, var.region]
}
