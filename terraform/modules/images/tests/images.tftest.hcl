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
  mock_resource "aws_kms_key" {
    defaults = { arn = "arn:aws:kms:us-east-1:123456789012:key/1" }
  }
}

variables {
  name         = "gpu"
  builder_arns = ["arn:aws:iam::123456789012:role/ci"]
}

run "without_other_accounts_the_key_is_this_accounts_alone" {
  command = apply

  assert {
    condition     = length(data.aws_iam_policy_document.key.statement) == 1 && length(aws_ami_launch_permission.shared) == 0
    error_message = "No other account may use the key or an image."
  }
}

run "each_image_is_shared_with_each_account" {
  command = apply
  variables {
    account_ids = ["210987654321", "310987654321"]
    image_ids   = ["ami-0a", "ami-0b"]
  }

  assert {
    condition     = length(aws_ami_launch_permission.shared) == 4
    error_message = "Each account must be able to launch from each image."
  }
  assert {
    condition     = toset(flatten([for one in data.aws_iam_policy_document.key.statement[1].principals : one.identifiers])) == toset(["arn:aws:iam::210987654321:root", "arn:aws:iam::310987654321:root"])
    error_message = "The key must be usable by exactly these accounts."
  }
}

run "a_build_cannot_end_a_fleets_machine" {
  command = apply

  assert {
    condition     = one(data.aws_iam_policy_document.build.statement[2].condition).variable == "aws:ResourceTag/autoscaler:fleet"
    error_message = "Machines of a fleet must be out of reach of the build role."
  }
}

run "mistakes_are_named" {
  command = plan
  variables {
    builder_arns = ["*"]
    account_ids  = ["acme"]
    image_ids    = ["gpu-runner-linux-1"]
  }
  expect_failures = [var.builder_arns, var.account_ids, var.image_ids]
}
