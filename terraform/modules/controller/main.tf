# One host that runs the controller and replaces itself: an auto scaling group of one. A new host attaches the
# volume with the store; if the volume is lost, it restores the newest backup. With `replicas`, there are two hosts
# in two zones, and the store is on PostgreSQL.

data "aws_partition" "here" {}
data "aws_caller_identity" "here" {}
data "aws_region" "here" {}

data "aws_subnet" "host" {
  id = var.subnet_id
}

data "aws_subnet" "second" {
  count = local.alone ? 0 : 1
  id    = var.replicas.subnet_id
}

locals {
  # One host with its store on a volume. Otherwise the hosts are replicas.
  alone     = var.replicas == null
  name      = "${var.fleet}-controller"
  tags      = merge(var.tags, { Name = local.name })
  partition = data.aws_partition.here.partition
  account   = data.aws_caller_identity.here.account_id
  region    = data.aws_region.here.name
  place     = "${local.region}:${local.account}"
  # fleet.yaml names these files of the host.
  secrets = {
    for name, arn in {
      "github-app.pem" = var.secret_arns.github_app_private_key
      "webhook-secret" = var.secret_arns.webhook_secret
      "admin-token"    = var.secret_arns.admin_token
      "metrics-token"  = var.secret_arns.metrics_token
    } : name => arn
  }
}

resource "aws_cloudwatch_log_group" "controller" {
  #checkov:skip=CKV_AWS_158:CloudWatch encrypts every log, and no secret is in this one
  #checkov:skip=CKV_AWS_338:log_days says for how long; the history of jobs and machines is in the store
  name              = "/gpu-runner-autoscaler/${var.fleet}"
  retention_in_days = var.log_days
  tags              = var.tags
}
