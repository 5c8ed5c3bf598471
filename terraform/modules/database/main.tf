# The PostgreSQL database of several replicas: Amazon RDS with a synchronous standby in another zone. It holds no role
# and no database of the controller: docs/deploy.md has the two statements, which an operator runs once.

locals {
  name   = "${var.fleet}-store"
  user   = "autoscaler"
  place  = split(":", aws_db_instance.store.arn)
  url    = "postgresql://${local.user}@${aws_db_instance.store.address}:5432/autoscaler?sslmode=verify-full"
  tags   = merge(var.tags, { Name = local.name })
  family = "postgres${split(".", var.engine_version)[0]}"
  gib    = 1024 * 1024 * 1024
}

resource "aws_db_subnet_group" "store" {
  name        = local.name
  description = "The store of the fleet ${var.fleet}"
  subnet_ids  = var.subnet_ids
  tags        = local.tags
}

resource "aws_db_parameter_group" "store" {
  name        = "${local.name}-${local.family}"
  family      = local.family
  description = "The store of the fleet ${var.fleet}"
  tags        = local.tags

  # Sessions without TLS are refused.
  parameter {
    name  = "rds.force_ssl"
    value = "1"
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_security_group" "store" {
  name        = local.name
  description = "The store of the fleet ${var.fleet}: reached by its replicas alone"
  vpc_id      = var.vpc_id
  tags        = local.tags
}

# By number: the IDs of groups are not known before they exist.
resource "aws_vpc_security_group_ingress_rule" "store" {
  for_each                     = { for number, group in var.client_security_group_ids : tostring(number) => group }
  security_group_id            = aws_security_group.store.id
  description                  = "PostgreSQL from the replicas"
  referenced_security_group_id = each.value
  ip_protocol                  = "tcp"
  from_port                    = 5432
  to_port                      = 5432
  tags                         = local.tags
}

resource "aws_db_instance" "store" {
  #checkov:skip=CKV_AWS_118:autoscaler_store_write_duration_seconds shows a slow database
  #checkov:skip=CKV_AWS_353:the alert StoreSlow shows a slow database
  #checkov:skip=CKV2_AWS_30:a logged statement has its values, of which some are secrets
  #checkov:skip=CKV_AWS_293:destroy_data turns it off, on purpose
  identifier     = local.name
  engine         = "postgres"
  engine_version = var.engine_version
  instance_class = var.instance_class
  port           = 5432
  tags           = local.tags

  # RDS keeps the password of this user in Secrets Manager, and replaces it. Replicas have a role of their own.
  username                    = "postgres"
  manage_master_user_password = true
  # For users with the role `rds_iam`; the others have passwords.
  iam_database_authentication_enabled = true

  # The standby is synchronous: a failover loses nothing that was committed.
  multi_az               = true
  db_subnet_group_name   = aws_db_subnet_group.store.name
  vpc_security_group_ids = [aws_security_group.store.id]
  publicly_accessible    = false
  parameter_group_name   = aws_db_parameter_group.store.name
  ca_cert_identifier     = "rds-ca-rsa2048-g1"

  allocated_storage     = var.storage_gb
  max_allocated_storage = var.max_storage_gb
  storage_type          = "gp3"
  storage_encrypted     = true
  kms_key_id            = var.key_arn

  backup_retention_period         = var.backup_days
  copy_tags_to_snapshot           = true
  deletion_protection             = !var.destroy_data
  skip_final_snapshot             = var.destroy_data
  final_snapshot_identifier       = "${local.name}-final"
  auto_minor_version_upgrade      = true
  enabled_cloudwatch_logs_exports = ["postgresql", "upgrade"]
}

# RDS makes the storage larger when less than a tenth of it is free, up to max_storage_gb and once in six hours.
resource "aws_cloudwatch_metric_alarm" "storage" {
  alarm_name          = "${var.fleet}-store-nearly-full"
  alarm_description   = "The database of the controller has little storage left. When it is full, no job gets a machine. Raise max_storage_gb."
  namespace           = "AWS/RDS"
  metric_name         = "FreeStorageSpace"
  dimensions          = { DBInstanceIdentifier = aws_db_instance.store.identifier }
  statistic           = "Minimum"
  period              = 300
  evaluation_periods  = 2
  comparison_operator = "LessThanThreshold"
  threshold           = var.storage_gb * local.gib / 20
  treat_missing_data  = "missing"
  alarm_actions       = var.alarm_actions
  ok_actions          = var.alarm_actions
  tags                = var.tags
}
