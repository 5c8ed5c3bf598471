# What the machines of a fleet get in one region: an instance profile whose role may do nothing, and a security
# group without ingress. Jobs run on the machines, so anything that the role may do, a job may do.

locals {
  name = "${var.fleet}-runner-${var.region}"
  tags = merge(var.tags, { Name = local.name })
  own  = var.permissions_boundary_arn == null
  # No data source: one would be read late in a module that is called with `depends_on`.
  trust = {
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.amazonaws.com" }
    }]
  }
  nothing = {
    Version   = "2012-10-17"
    Statement = [{ Sid = "Nothing", Effect = "Deny", Action = "*", Resource = "*" }]
  }

  # A rule has every attribute, so that `ingress = []` also removes a rule that was added by hand.
  rule = {
    description      = ""
    protocol         = "-1"
    from_port        = 0
    to_port          = 0
    cidr_blocks      = []
    ipv6_cidr_blocks = []
    prefix_list_ids  = []
    security_groups  = []
    self             = false
  }
  within = merge(local.rule, { description = "EFA: all traffic within the group", self = true })
}

# A policy that someone attaches to the role later has no effect under this boundary.
resource "aws_iam_policy" "boundary" {
  count       = local.own ? 1 : 0
  name        = "${local.name}-boundary"
  description = "Permissions boundary of the machines of the fleet ${var.fleet}: nothing."
  policy      = jsonencode(local.nothing)
  tags        = var.tags
}

resource "aws_iam_role" "runner" {
  name                 = local.name
  description          = "Machines of the fleet ${var.fleet}. Their jobs can use this role."
  assume_role_policy   = jsonencode(local.trust)
  permissions_boundary = local.own ? aws_iam_policy.boundary[0].arn : var.permissions_boundary_arn
  tags                 = var.tags
}

resource "aws_iam_role_policy_attachment" "runner" {
  for_each   = var.policy_arns
  role       = aws_iam_role.runner.name
  policy_arn = each.value
}

resource "aws_iam_instance_profile" "runner" {
  name = local.name
  role = aws_iam_role.runner.name
  tags = var.tags
}

# The rules are within the group. Rules that are resources of their own depend on the group, so a `destroy` would
# delete them before it tries the group, and running machines would lose their network.
resource "aws_security_group" "runner" {
  #checkov:skip=CKV2_AWS_5:The controller attaches it to the machines that it launches
  name        = local.name
  description = "Machines of the fleet ${var.fleet}: no ingress"
  vpc_id      = var.vpc_id
  tags        = local.tags

  ingress = var.efa ? [local.within] : []
  egress = concat(
    length(var.egress_cidrs) == 0 ? [] : [merge(local.rule, {
      description      = "GitHub, the controller, and what jobs download"
      cidr_blocks      = sort([for one in var.egress_cidrs : one if !strcontains(one, ":")])
      ipv6_cidr_blocks = sort([for one in var.egress_cidrs : one if strcontains(one, ":")])
    })],
    var.efa ? [local.within] : [],
  )

  # EC2 refuses to delete a group while a machine is in it. `destroy` deletes the group before everything that
  # the group depends on, so it stops here while machines run. Nothing releases the group but their termination,
  # so a longer wait is of no use.
  depends_on = [
    aws_iam_instance_profile.runner,
    aws_iam_role_policy_attachment.runner,
    aws_kms_grant.spot,
  ]
  timeouts {
    delete = "1m"
  }
}

resource "aws_iam_service_linked_role" "spot" {
  count            = var.create_spot_role ? 1 : 0
  aws_service_name = "spot.amazonaws.com"
  description      = "Lets EC2 launch spot machines"
}

# Spot's role launches the machines, so it needs the key of their disks.
resource "aws_kms_grant" "spot" {
  for_each          = var.disk_key_arns
  name              = "${local.name}-spot"
  key_id            = each.value
  grantee_principal = "arn:${split(":", each.value)[1]}:iam::${var.account_id}:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
  operations = [
    "CreateGrant",
    "Decrypt",
    "DescribeKey",
    "Encrypt",
    "GenerateDataKey",
    "GenerateDataKeyWithoutPlaintext",
    "ReEncryptFrom",
    "ReEncryptTo",
  ]

  depends_on = [aws_iam_service_linked_role.spot]
}
