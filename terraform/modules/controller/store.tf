# The store of a host alone: a volume in its zone. The bucket has the backups of this store, and fleet.yaml.

resource "aws_ebs_volume" "store" {
  count             = local.alone ? 1 : 0
  availability_zone = data.aws_subnet.host.availability_zone
  size              = var.volume_gb
  type              = "gp3"
  encrypted         = true
  kms_key_id        = var.volume_key_arn
  final_snapshot    = !var.destroy_data
  # Not the fleet's tag: the controller may delete volumes that have it.
  tags = merge(local.tags, { Name = "${local.name}-store" })

  # EC2 does not delete a volume that is attached. With the new one, the group replaces the host that has the old one.
  lifecycle {
    create_before_destroy = true
  }
}

# Here, and not in user data: the certificates of all regions are ten times as large as user data may be.
resource "aws_s3_object" "database_ca" {
  count        = local.alone ? 0 : 1
  bucket       = aws_s3_bucket.data.id
  key          = local.database_ca
  content      = var.replicas.database_ca_pem
  content_type = "application/x-pem-file"
  tags         = var.tags
}

resource "aws_s3_bucket" "data" {
  #checkov:skip=CKV_AWS_18:Only the host and operators may read it, and CloudTrail can record who does
  #checkov:skip=CKV_AWS_144:The backups are for a lost volume; without its region, the controller itself is gone
  #checkov:skip=CKV2_AWS_62:Nothing waits for a change: the host reads fleet.yaml each minute
  bucket_prefix = "${var.fleet}-"
  force_destroy = var.destroy_data
  tags          = var.tags
}

resource "aws_s3_bucket_public_access_block" "data" {
  bucket                  = aws_s3_bucket.data.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_server_side_encryption_configuration" "data" {
  bucket = aws_s3_bucket.data.id
  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm     = var.volume_key_arn == null ? "AES256" : "aws:kms"
      kms_master_key_id = var.volume_key_arn
    }
    bucket_key_enabled = var.volume_key_arn != null
  }
}

# Every backup is a version of the same object.
resource "aws_s3_bucket_versioning" "data" {
  bucket = aws_s3_bucket.data.id
  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "data" {
  bucket = aws_s3_bucket.data.id
  rule {
    id     = "earlier-backups"
    status = "Enabled"
    filter {
      prefix = ""
    }
    noncurrent_version_expiration {
      noncurrent_days = var.backup_days
    }
    abort_incomplete_multipart_upload {
      days_after_initiation = 1
    }
  }

  depends_on = [aws_s3_bucket_versioning.data]
}

data "aws_iam_policy_document" "bucket" {
  statement {
    sid       = "RefusePlainHttp"
    effect    = "Deny"
    actions   = ["s3:*"]
    resources = [aws_s3_bucket.data.arn, "${aws_s3_bucket.data.arn}/*"]
    principals {
      type        = "*"
      identifiers = ["*"]
    }
    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }
}

resource "aws_s3_bucket_policy" "data" {
  bucket = aws_s3_bucket.data.id
  policy = data.aws_iam_policy_document.bucket.json

  depends_on = [aws_s3_bucket_public_access_block.data]
}
