# The controller's policy for one region: what the EC2 provider of fleet.yaml may do there, and nothing else. The
# text is that of docs/ec2.md, in one file for both.

data "aws_caller_identity" "here" {}
data "aws_partition" "here" {}
data "aws_region" "here" {}

locals {
  partition = data.aws_partition.here.partition
  account   = data.aws_caller_identity.here.account_id
  region    = data.aws_region.here.name
  place     = "${local.region}:${local.account}"
  subnets   = [for subnet in var.subnet_ids : "arn:${local.partition}:ec2:${local.place}:subnet/${subnet}"]
  roles     = var.runner_role_names == null ? ["${var.fleet}-runner-${local.region}"] : var.runner_role_names

  statements = jsondecode(templatefile("${path.module}/policy.json.tftpl", {
    FLEET     = var.fleet
    PARTITION = local.partition
    REGION    = local.region
    ACCOUNT   = local.account
    # The statements get their lists of resources from local.resources.
    SUBNET = "*"
    ROLE   = "*"
    QUEUE  = "*"
    KEY    = "*"
  })).Statement

  # Resources by Sid. A statement without resources is left out.
  resources = {
    LaunchInto               = local.subnets
    GiveMachinesTheirRole    = [for role in local.roles : "arn:${local.partition}:iam::${local.account}:role/${role}"]
    ReadNotices              = var.queue_arns
    UseKeyOfDisks            = var.disk_key_arns
    LetMachinesUseKeyOfDisks = var.disk_key_arns
  }

  # Conditions by Sid, with the lists of their values.
  conditions = {
    ConnectWithinSubnets = { ArnEqualsIfExists = { "ec2:Subnet" = local.subnets } }
  }

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      for statement in local.statements : merge(
        statement,
        try({ Resource = local.resources[statement.Sid] }, {}),
        try({ Condition = local.conditions[statement.Sid] }, {}),
      )
      if try(length(local.resources[statement.Sid]) > 0, true)
    ]
  })
}

resource "aws_iam_policy" "controller" {
  name        = "${var.fleet}-controller-${local.region}"
  description = "What the controller of the fleet ${var.fleet} may do in ${local.region}"
  policy      = local.policy
  tags        = var.tags

  lifecycle {
    precondition {
      condition     = length(replace(local.policy, "/\\s/", "")) <= 6144
      error_message = "The policy has more than the 6,144 characters that IAM allows: name fewer subnets or keys."
    }
  }
}
