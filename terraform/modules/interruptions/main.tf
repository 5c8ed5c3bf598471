# The queue from which the controller reads that EC2 takes machines back, in one region. The patterns are those of
# docs/ec2.md, in one file for both.

locals {
  name     = "${var.fleet}-interruptions"
  patterns = jsondecode(file("${path.module}/event-patterns.json"))
}

# EventBridge puts events here that it cannot deliver to the queue.
resource "aws_sqs_queue" "dead_letters" {
  name                      = "${local.name}-dead-letters"
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = true
  tags                      = var.tags
}

# The controller deletes what it cannot read after five receptions. Only a controller that dies over a message
# leaves more, and the message then goes to the dead letters.
resource "aws_sqs_queue" "events" {
  name                       = local.name
  message_retention_seconds  = 86400
  visibility_timeout_seconds = 30
  sqs_managed_sse_enabled    = true
  tags                       = var.tags

  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead_letters.arn
    maxReceiveCount     = 20
  })
}

resource "aws_sqs_queue_redrive_allow_policy" "dead_letters" {
  queue_url = aws_sqs_queue.dead_letters.id
  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = [aws_sqs_queue.events.arn]
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

data "aws_iam_policy_document" "queues" {
  for_each = {
    events       = aws_sqs_queue.events.arn
    dead_letters = aws_sqs_queue.dead_letters.arn
  }

  statement {
    sid       = "SendFromRules"
    actions   = ["sqs:SendMessage"]
    resources = [each.value]
    principals {
      type        = "Service"
      identifiers = ["events.amazonaws.com"]
    }
    condition {
      test     = "ArnEquals"
      variable = "aws:SourceArn"
      values   = sort([for rule in aws_cloudwatch_event_rule.events : rule.arn])
    }
  }

  statement {
    sid       = "RefusePlainHttp"
    effect    = "Deny"
    actions   = ["sqs:*"]
    resources = [each.value]
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

resource "aws_sqs_queue_policy" "queues" {
  for_each = {
    events       = aws_sqs_queue.events.id
    dead_letters = aws_sqs_queue.dead_letters.id
  }
  queue_url = each.value
  policy    = data.aws_iam_policy_document.queues[each.key].json
}
