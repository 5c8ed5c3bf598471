# The queue from which the controller reads that EC2 takes machines back, in one region. The patterns are those of
# docs/ec2.md, in one file for both.

data "aws_partition" "here" {}
data "aws_caller_identity" "here" {}
data "aws_region" "here" {}

locals {
  name         = "${var.fleet}-interruptions"
  dead_letters = "${local.name}-dead-letters"
  patterns     = jsondecode(file("${path.module}/event-patterns.json"))

  partition = data.aws_partition.here.partition
  place     = "${data.aws_region.here.name}:${data.aws_caller_identity.here.account_id}"
  rules     = [for name in keys(local.patterns) : "arn:${local.partition}:events:${local.place}:rule/${local.name}-${name}"]
}

data "aws_iam_policy_document" "queue" {
  for_each = toset([local.name, local.dead_letters])

  statement {
    sid       = "SendFromRules"
    actions   = ["sqs:SendMessage"]
    resources = ["arn:${local.partition}:sqs:${local.place}:${each.key}"]
    principals {
      type        = "Service"
      identifiers = ["events.amazonaws.com"]
    }
    condition {
      test     = "ArnEquals"
      variable = "aws:SourceArn"
      values   = local.rules
    }
  }

  statement {
    sid       = "RefusePlainHttp"
    effect    = "Deny"
    actions   = ["sqs:*"]
    resources = ["arn:${local.partition}:sqs:${local.place}:${each.key}"]
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

# EventBridge puts events here that it cannot deliver to the queue.
resource "aws_sqs_queue" "dead_letters" {
  name                      = local.dead_letters
  policy                    = data.aws_iam_policy_document.queue[local.dead_letters].json
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = true
  tags                      = var.tags
}

# The controller deletes what it cannot read after five receptions. Only a controller that exits
# while it reads a message leaves more, and the message then goes to the dead letters.
resource "aws_sqs_queue" "events" {
  name                       = local.name
  policy                     = data.aws_iam_policy_document.queue[local.name].json
  message_retention_seconds  = 86400
  visibility_timeout_seconds = 30
  sqs_managed_sse_enabled    = true
  tags                       = var.tags

  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead_letters.arn
    maxReceiveCount     = 20
  })
}

resource "aws_cloudwatch_event_rule" "events" {
  for_each      = local.patterns
  name          = "${local.name}-${each.key}"
  description   = "Machines that EC2 takes back, for the fleet ${var.fleet}"
  event_pattern = jsonencode(each.value)
  tags          = var.tags
}

resource "aws_cloudwatch_event_target" "events" {
  for_each  = local.patterns
  rule      = aws_cloudwatch_event_rule.events[each.key].name
  target_id = "queue"
  arn       = aws_sqs_queue.events.arn

  dead_letter_config {
    arn = aws_sqs_queue.dead_letters.arn
  }
}
