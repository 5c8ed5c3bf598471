# What image builds need in the account and region that owns the images: a role for `autoscaler images bake`, a key for
# the snapshots, and the other accounts that may launch from the images.

data "aws_partition" "here" {}
data "aws_caller_identity" "here" {}
data "aws_region" "here" {}

locals {
  name      = "${var.name}-images"
  partition = data.aws_partition.here.partition
  account   = data.aws_caller_identity.here.account_id
  region    = data.aws_region.here.name
  root      = "arn:${local.partition}:iam::%s:root"
  ec2       = "arn:${local.partition}:ec2:${local.region}"
  kms_uses  = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]

  # Each published image for each account.
  shares = {
    for pair in setproduct(var.image_ids, var.account_ids) : "${pair[0]} ${pair[1]}" => { image = pair[0], account = pair[1] }
  }
}

data "aws_iam_policy_document" "key" {
  #checkov:skip=CKV_AWS_109:In a key's policy, * is this key, and the account must be able to administer it
  #checkov:skip=CKV_AWS_111:In a key's policy, * is this key
  #checkov:skip=CKV_AWS_356:In a key's policy, * is this key
  statement {
    sid       = "Administer"
    actions   = ["kms:*"]
    resources = ["*"]
    principals {
      type        = "AWS"
      identifiers = [format(local.root, local.account)]
    }
  }
  dynamic "statement" {
    for_each = length(var.account_ids) > 0 ? [true] : []
    content {
      sid       = "LaunchFromOtherAccounts"
      actions   = local.kms_uses
      resources = ["*"]
      principals {
        type        = "AWS"
        identifiers = [for account in var.account_ids : format(local.root, account)]
      }
      condition {
        test     = "StringEquals"
        variable = "kms:ViaService"
        values   = ["ec2.${local.region}.amazonaws.com"]
      }
    }
  }
  # Controllers of other accounts, and spot's role there, get grants for the disks that EC2 makes.
  dynamic "statement" {
    for_each = length(var.account_ids) > 0 ? [true] : []
    content {
      sid       = "GiveDisksOfOtherAccountsTheKey"
      actions   = ["kms:CreateGrant"]
      resources = ["*"]
      principals {
        type        = "AWS"
        identifiers = [for account in var.account_ids : format(local.root, account)]
      }
      # Not `kms:GrantIsForAWSResource`: the grant for spot's role is made by a person or by Terraform.
      condition {
        test     = "ForAllValues:StringEquals"
        variable = "kms:GrantOperations"
        values   = ["CreateGrant", "Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey", "GenerateDataKeyWithoutPlaintext", "ReEncryptFrom", "ReEncryptTo"]
      }
    }
  }
  # Terraform reads and deletes the grant for spot's role (`aws_kms_grant`), not through EC2.
  dynamic "statement" {
    for_each = length(var.account_ids) > 0 ? [true] : []
    content {
      sid       = "ReadAndRevokeGrantsOfOtherAccounts"
      actions   = ["kms:ListGrants", "kms:RevokeGrant"]
      resources = ["*"]
      principals {
        type        = "AWS"
        identifiers = [for account in var.account_ids : format(local.root, account)]
      }
    }
  }
}

resource "aws_kms_key" "images" {
  description         = "Snapshots of the machine images ${var.name}"
  enable_key_rotation = true
  policy              = data.aws_iam_policy_document.key.json
  tags                = var.tags
}

resource "aws_kms_alias" "images" {
  name          = "alias/${local.name}"
  target_key_id = aws_kms_key.images.key_id
}

resource "aws_ami_launch_permission" "shared" {
  #checkov:skip=CKV_AWS_205:It shares the named images with the named accounts, which is its purpose
  for_each   = local.shares
  image_id   = each.value.image
  account_id = each.value.account
}

data "aws_iam_policy_document" "trust" {
  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type        = "AWS"
      identifiers = var.builder_arns
    }
  }
}

# What Packer's amazon-ebs builder calls with the recipes in ami/, and `autoscaler images publish` and `prune`. Both tag
# their machines in RunInstances. The role can stop, terminate, image and delete only resources with that tag. Four
# gaps remain, because builds and `prune` need them. An account of its own for builds has none of them:
# - Packer tags an image and its snapshots after it has made them, so the role can tag any image or snapshot of the
#   account, and then delete it.
# - The role can launch a machine from any image that the account may use.
# - Packer 1.6 does not tag the security group of a build, so the role can open and delete any.
# - `prune` reads which images launch templates use, and the same call returns their user data.
data "aws_iam_policy_document" "build" {
  statement {
    sid = "Describe"
    # Not `ec2:Describe*`: DescribeInstanceAttribute returns the user data of any machine.
    actions = [
      "ec2:DescribeImages",
      "ec2:DescribeInstanceStatus",
      "ec2:DescribeInstances",
      "ec2:DescribeLaunchTemplateVersions",
      "ec2:DescribeLaunchTemplates",
      "ec2:DescribeRegions",
      "ec2:DescribeSecurityGroups",
      "ec2:DescribeSnapshots",
      "ec2:DescribeSubnets",
      "ec2:DescribeTags",
      "ec2:DescribeVolumes",
    ]
    resources = ["*"]
  }
  # `prune` lets EC2 say which images launch templates name by parameters. AWS's own parameters are public.
  statement {
    sid       = "ReadPublicImageParameters"
    actions   = ["ssm:GetParameters"]
    resources = ["arn:${local.partition}:ssm:${local.region}::parameter/aws/service/*"]
  }
  statement {
    sid       = "LaunchTagged"
    actions   = ["ec2:RunInstances"]
    resources = ["${local.ec2}:${local.account}:instance/*"]
    condition {
      test     = "Null"
      variable = "aws:RequestTag/autoscaler:image-set"
      values   = ["false"]
    }
  }
  statement {
    sid     = "LaunchFrom"
    actions = ["ec2:RunInstances"]
    resources = [
      "${local.ec2}::image/*",
      "${local.ec2}::snapshot/*",
      "${local.ec2}:${local.account}:image/*",
      "${local.ec2}:${local.account}:key-pair/*",
      "${local.ec2}:${local.account}:network-interface/*",
      "${local.ec2}:${local.account}:security-group/*",
      "${local.ec2}:${local.account}:snapshot/*",
      "${local.ec2}:${local.account}:subnet/*",
      "${local.ec2}:${local.account}:volume/*",
    ]
  }
  statement {
    sid     = "ConnectToBuildMachines"
    actions = ["ec2:AuthorizeSecurityGroupIngress", "ec2:CreateSecurityGroup", "ec2:DeleteSecurityGroup"]
    resources = [
      "${local.ec2}:${local.account}:security-group/*",
      "${local.ec2}:${local.account}:security-group-rule/*",
      "${local.ec2}:${local.account}:vpc/*",
    ]
  }
  statement {
    sid       = "MakeTemporaryKeys"
    actions   = ["ec2:CreateKeyPair", "ec2:DeleteKeyPair"]
    resources = ["${local.ec2}:${local.account}:key-pair/packer_*"]
  }
  statement {
    sid       = "MakeImages"
    actions   = ["ec2:CreateImage"]
    resources = ["${local.ec2}::image/*", "${local.ec2}::snapshot/*"]
  }
  statement {
    sid     = "TagBuildMachines"
    actions = ["ec2:CreateTags"]
    resources = [
      "${local.ec2}:${local.account}:instance/*",
      "${local.ec2}:${local.account}:network-interface/*",
      "${local.ec2}:${local.account}:volume/*",
    ]
    condition {
      test     = "StringEquals"
      variable = "ec2:CreateAction"
      values   = ["RunInstances"]
    }
  }
  statement {
    sid     = "TagImages"
    actions = ["ec2:CreateTags", "ec2:DeleteTags"]
    resources = [
      "${local.ec2}:${local.account}:key-pair/packer_*",
      "${local.ec2}:${local.account}:security-group/*",
      "${local.ec2}::image/*",
      "${local.ec2}::snapshot/*",
    ]
    condition {
      test     = "ForAllValues:StringLike"
      variable = "aws:TagKeys"
      values   = ["Name", "autoscaler:image-*", "autoscaler:published", "autoscaler:test-failed"]
    }
    # Without keys, DeleteTags removes all tags, and ForAllValues would hold.
    condition {
      test     = "Null"
      variable = "aws:TagKeys"
      values   = ["false"]
    }
  }
  statement {
    sid = "UseAndDeleteOwn"
    actions = [
      "ec2:CreateImage",
      "ec2:DeleteSnapshot",
      "ec2:DeregisterImage",
      "ec2:GetConsoleOutput",
      "ec2:StopInstances",
      "ec2:TerminateInstances",
    ]
    resources = ["${local.ec2}:${local.account}:instance/*", "${local.ec2}::image/*", "${local.ec2}::snapshot/*"]
    condition {
      test     = "Null"
      variable = "aws:ResourceTag/autoscaler:image-set"
      values   = ["false"]
    }
  }
  statement {
    sid       = "Encrypt"
    actions   = concat(local.kms_uses, ["kms:CreateGrant"])
    resources = [aws_kms_key.images.arn]
    condition {
      test     = "StringEquals"
      variable = "kms:ViaService"
      values   = ["ec2.${local.region}.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "build" {
  name               = "${local.name}-${local.region}"
  description        = "Builds, tests and publishes the machine images ${var.name}"
  assume_role_policy = data.aws_iam_policy_document.trust.json
  tags               = var.tags
}

resource "aws_iam_role_policy" "build" {
  name   = "build"
  role   = aws_iam_role.build.id
  policy = data.aws_iam_policy_document.build.json
}
