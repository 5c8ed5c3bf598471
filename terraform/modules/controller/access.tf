# What the host may do: what the fleet needs (the policies of the module `permissions`), and what it needs itself.

data "aws_iam_policy_document" "trust" {
  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type        = "Service"
      identifiers = ["ec2.amazonaws.com"]
    }
  }
}

data "aws_iam_policy_document" "host" {
  #checkov:skip=CKV_AWS_111:Session Manager and CloudWatch's metrics have no resources to name; AWS's own policies for them name none
  #checkov:skip=CKV_AWS_356:Session Manager and CloudWatch's metrics have no resources to name; AWS's own policies for them name none
  dynamic "statement" {
    for_each = local.alone ? [true] : []
    content {
      sid       = "DescribeHostsAndVolumes"
      actions   = ["ec2:DescribeInstances", "ec2:DescribeVolumes"]
      resources = ["*"]
    }
  }
  dynamic "statement" {
    for_each = aws_ebs_volume.store[*].arn
    content {
      sid       = "MoveTheVolume"
      actions   = ["ec2:AttachVolume", "ec2:DetachVolume"]
      resources = [statement.value]
    }
  }
  dynamic "statement" {
    for_each = local.alone ? [true] : []
    content {
      sid       = "MoveTheVolumeBetweenHosts"
      actions   = ["ec2:AttachVolume", "ec2:DetachVolume"]
      resources = ["arn:${local.partition}:ec2:${local.place}:instance/*"]
      condition {
        test     = "StringEquals"
        variable = "aws:ResourceTag/gpu-runner-autoscaler:controller"
        values   = [var.fleet]
      }
    }
  }
  # As this user of the database, and no other one.
  dynamic "statement" {
    for_each = local.alone ? [] : [var.replicas.database_user_arn]
    content {
      sid       = "SignInToTheDatabase"
      actions   = ["rds-db:connect"]
      resources = [statement.value]
    }
  }
  statement {
    sid     = "ReadTheFleetFile${local.alone ? "AndBackUp" : ""}"
    actions = ["s3:GetObject"]
    resources = [
      for key in ["fleet.yaml", local.alone ? local.backup : local.database_ca] : "${aws_s3_bucket.data.arn}/${key}"
    ]
  }
  dynamic "statement" {
    for_each = local.alone ? [true] : []
    content {
      sid       = "BackUp"
      actions   = ["s3:PutObject"]
      resources = ["${aws_s3_bucket.data.arn}/${local.backup}"]
    }
  }
  # Without it, S3 answers 403 in place of 404 for an object that does not exist.
  statement {
    sid       = "ListObjects"
    actions   = ["s3:ListBucket"]
    resources = [aws_s3_bucket.data.arn]
  }
  statement {
    sid       = "ReadSecrets"
    actions   = ["secretsmanager:GetSecretValue"]
    resources = concat(values(local.secrets), local.alone ? [] : [var.replicas.certificate_secret_arn])
  }
  statement {
    sid       = "Log"
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["${aws_cloudwatch_log_group.controller.arn}:*"]
  }
  dynamic "statement" {
    for_each = local.alone ? [true] : []
    content {
      sid       = "CountBackups"
      actions   = ["cloudwatch:PutMetricData"]
      resources = ["*"]
      condition {
        test     = "StringEquals"
        variable = "cloudwatch:namespace"
        values   = [local.namespace]
      }
    }
  }
  # `aws ssm start-session`, which needs no ingress.
  statement {
    sid = "OpenSessions"
    actions = [
      "ssm:UpdateInstanceInformation",
      "ssmmessages:CreateControlChannel",
      "ssmmessages:CreateDataChannel",
      "ssmmessages:OpenControlChannel",
      "ssmmessages:OpenDataChannel",
    ]
    resources = ["*"]
  }
  dynamic "statement" {
    for_each = length(var.secret_key_arns) > 0 ? [var.secret_key_arns] : []
    content {
      sid       = "DecryptSecrets"
      actions   = ["kms:Decrypt"]
      resources = statement.value
      condition {
        test     = "StringEquals"
        variable = "kms:ViaService"
        values   = ["secretsmanager.${local.region}.amazonaws.com"]
      }
    }
  }
  dynamic "statement" {
    for_each = var.volume_key_arn == null ? [] : [var.volume_key_arn]
    content {
      sid       = "EncryptTheBucket"
      actions   = ["kms:Decrypt", "kms:GenerateDataKey"]
      resources = [statement.value]
      condition {
        test     = "StringEquals"
        variable = "kms:ViaService"
        values   = ["s3.${local.region}.amazonaws.com"]
      }
    }
  }
  dynamic "statement" {
    for_each = var.volume_key_arn != null && local.alone ? [var.volume_key_arn] : []
    content {
      sid       = "AttachEncryptedVolume"
      actions   = ["kms:CreateGrant"]
      resources = [statement.value]
      condition {
        test     = "Bool"
        variable = "kms:GrantIsForAWSResource"
        values   = ["true"]
      }
    }
  }
  dynamic "statement" {
    for_each = length(var.ecr_repository_arns) > 0 ? [var.ecr_repository_arns] : []
    content {
      sid       = "PullTheImage"
      actions   = ["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
      resources = statement.value
    }
  }
  dynamic "statement" {
    for_each = length(var.ecr_repository_arns) > 0 ? [true] : []
    content {
      sid       = "LogInToTheRegistry"
      actions   = ["ecr:GetAuthorizationToken"]
      resources = ["*"]
    }
  }
}

resource "aws_iam_role" "controller" {
  name                 = local.name
  description          = "The controller's host of the fleet ${var.fleet}"
  assume_role_policy   = data.aws_iam_policy_document.trust.json
  permissions_boundary = var.permissions_boundary_arn
  tags                 = var.tags
}

resource "aws_iam_role_policy" "host" {
  name   = "host"
  role   = aws_iam_role.controller.id
  policy = data.aws_iam_policy_document.host.json
}

resource "aws_iam_role_policy_attachment" "fleet" {
  for_each   = var.policy_arns
  role       = aws_iam_role.controller.name
  policy_arn = each.value
}

resource "aws_iam_instance_profile" "controller" {
  name = local.name
  role = aws_iam_role.controller.name
  tags = var.tags
}
