mock_provider "aws" {
  mock_data "aws_caller_identity" {
    defaults = {
      account_id = "123456789012"
    }
  }
  mock_data "aws_partition" {
    defaults = {
      partition = "aws-us-gov"
    }
  }
  mock_data "aws_region" {
    defaults = {
      name = "us-gov-west-1"
    }
  }
}

variables {
  fleet      = "ci-gpu"
  subnet_ids = ["subnet-0a", "subnet-0b"]
}

run "without_a_role_a_queue_and_a_key_there_is_no_statement_for_them" {
  command = plan
  variables {
    runner_role_names = []
  }

  assert {
    condition = [for one in jsondecode(aws_iam_policy.controller.policy).Statement : one.Sid] == [
      "Describe", "LaunchFrom", "LaunchInto", "ConnectWithinSubnets", "LaunchByOwnTemplates", "MakeTagged", "TagWhatIsMade", "TerminateAndDeleteOwn", "ReadConsolesOfOwn",
    ]
    error_message = "Statements without resources must be left out."
  }
}

run "resources_are_exact" {
  command = plan
  variables {
    queue_arns    = ["arn:aws-us-gov:sqs:us-gov-west-1:123456789012:ci-gpu-interruptions"]
    disk_key_arns = ["arn:aws-us-gov:kms:us-gov-west-1:210987654321:key/one"]
  }

  assert {
    condition = {
      for one in jsondecode(aws_iam_policy.controller.policy).Statement : one.Sid => one.Resource
      if contains(["LaunchInto", "GiveMachinesTheirRole", "ReadNotices", "UseKeyOfDisks", "LetMachinesUseKeyOfDisks"], one.Sid)
      } == {
      LaunchInto = [
        "arn:aws-us-gov:ec2:us-gov-west-1:123456789012:subnet/subnet-0a",
        "arn:aws-us-gov:ec2:us-gov-west-1:123456789012:subnet/subnet-0b",
      ]
      GiveMachinesTheirRole    = ["arn:aws-us-gov:iam::123456789012:role/ci-gpu-runner-us-gov-west-1"]
      ReadNotices              = ["arn:aws-us-gov:sqs:us-gov-west-1:123456789012:ci-gpu-interruptions"]
      UseKeyOfDisks            = ["arn:aws-us-gov:kms:us-gov-west-1:210987654321:key/one"]
      LetMachinesUseKeyOfDisks = ["arn:aws-us-gov:kms:us-gov-west-1:210987654321:key/one"]
    }
    error_message = "The policy must name exactly the given resources."
  }
  assert {
    condition = [
      for one in jsondecode(aws_iam_policy.controller.policy).Statement : one.Condition
      if one.Sid == "ConnectWithinSubnets"
      ] == [{ ArnEqualsIfExists = { "ec2:Subnet" = [
        "arn:aws-us-gov:ec2:us-gov-west-1:123456789012:subnet/subnet-0a",
        "arn:aws-us-gov:ec2:us-gov-west-1:123456789012:subnet/subnet-0b",
    ] } }]
    error_message = "Network interfaces must be in exactly the given subnets."
  }
  assert {
    condition     = !strcontains(aws_iam_policy.controller.policy, "arn:aws:") && !strcontains(aws_iam_policy.controller.policy, "us-east-1")
    error_message = "Everything must be in the partition and region of the provider."
  }
}

run "a_policy_that_iam_would_refuse" {
  command = plan
  variables {
    subnet_ids = [for number in range(80) : format("subnet-%017x", number)]
  }
  expect_failures = [aws_iam_policy.controller]
}

run "a_url_is_not_an_arn" {
  command = plan
  variables {
    queue_arns = ["https://sqs.us-gov-west-1.amazonaws.com/123456789012/ci-gpu-interruptions"]
  }
  expect_failures = [var.queue_arns]
}

run "wildcards_are_refused" {
  command = plan
  variables {
    runner_role_names = ["*"]
    queue_arns        = ["arn:aws:sqs:us-east-1:123456789012:*"]
    disk_key_arns     = ["arn:aws:kms:us-east-1:123456789012:key/*"]
  }
  expect_failures = [var.runner_role_names, var.queue_arns, var.disk_key_arns]
}
