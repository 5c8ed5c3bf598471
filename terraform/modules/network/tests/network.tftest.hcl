mock_provider "aws" {
  mock_data "aws_region" {
    defaults = {
      name = "us-east-1"
    }
  }
}

# g5 is sold in a, b and a local zone, p5 in b and c.
override_data {
  target = data.aws_ec2_instance_type_offerings.wanted["g5.xlarge"]
  values = {
    locations = ["us-east-1b", "us-east-1-bos-1a", "us-east-1a"]
  }
}

override_data {
  target = data.aws_ec2_instance_type_offerings.wanted["p5.48xlarge"]
  values = {
    locations = ["us-east-1c", "us-east-1b"]
  }
}

variables {
  name           = "ci-gpu"
  instance_types = ["g5.xlarge", "p5.48xlarge"]
}

run "zones_that_sell_more_types_come_first" {
  command = apply

  assert {
    condition     = output.zones == tolist(["us-east-1b", "us-east-1a", "us-east-1c"])
    error_message = "The zone that sells both types comes first."
  }
  assert {
    condition     = aws_subnet.private["us-east-1b"].cidr_block == "10.64.0.0/19" && aws_subnet.public["us-east-1c"].cidr_block == "10.64.228.0/23"
    error_message = "Private subnets have an eighth of the addresses, public ones share the last eighth."
  }
  assert {
    condition     = length(aws_nat_gateway.nat) == 1 && length(aws_route.nat) == 3
    error_message = "One NAT gateway serves all private subnets."
  }
}

run "a_nat_gateway_in_each_zone" {
  command = plan
  variables {
    nat = "per-zone"
  }

  assert {
    condition     = length(aws_nat_gateway.nat) == 3
    error_message = "There must be a NAT gateway for each zone."
  }
}

run "no_nat_gateway" {
  command = plan
  variables {
    nat = "none"
  }

  assert {
    condition     = length(aws_nat_gateway.nat) == 0 && length(aws_route.nat) == 0
    error_message = "There must be no NAT gateway and no route to one."
  }
}

run "a_type_that_no_chosen_zone_sells" {
  command = plan
  variables {
    zones = ["us-east-1a"]
  }
  expect_failures = [aws_vpc.fleet]
}

run "values_that_ec2_refuses" {
  command = plan
  variables {
    cidr      = "10.0.0.0/8"
    nat       = "many"
    max_zones = 0
  }
  expect_failures = [var.cidr, var.nat, var.max_zones]
}
