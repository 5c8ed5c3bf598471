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
  assert {
    condition = [
      for statement in data.aws_iam_policy_document.key.statement : length(statement.condition)
      if contains(statement.actions, "kms:ListGrants") && contains(statement.actions, "kms:RevokeGrant")
    ] == [0]
    error_message = "Terraform must be able to read and delete the grants in the other accounts, without EC2."
  }
}

run "a_build_uses_and_deletes_only_what_has_the_tag_of_images" {
  command = apply

  assert {
    condition = toset([
      for statement in data.aws_iam_policy_document.build.statement : statement.sid
      if length(setintersection(statement.actions, ["ec2:DeleteSnapshot", "ec2:DeregisterImage", "ec2:GetConsoleOutput", "ec2:StopInstances", "ec2:TerminateInstances"])) > 0
    ]) == toset(["UseAndDeleteOwn"])
    error_message = "No other statement may allow these actions."
  }
  assert {
    condition     = [for statement in data.aws_iam_policy_document.build.statement : one(statement.condition).variable if statement.sid == "UseAndDeleteOwn"] == ["aws:ResourceTag/autoscaler:image-set"]
    error_message = "Machines of a fleet and images of others must be out of reach of the build role."
  }
}

run "a_build_cannot_give_the_tag_to_a_machine_that_exists" {
  command = apply

  assert {
    condition = alltrue([
      for statement in data.aws_iam_policy_document.build.statement :
      one(statement.condition).variable == "ec2:CreateAction"
      if contains(statement.actions, "ec2:CreateTags") && anytrue([for one in statement.resources : strcontains(one, ":instance/")])
    ])
    error_message = "With the tag, the role could terminate the machine."
  }
  assert {
    condition     = length([for statement in data.aws_iam_policy_document.build.statement : statement if contains(statement.actions, "ec2:DeleteTags") && length(statement.condition) == 2]) == 1
    error_message = "The role must remove tags of images alone."
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
