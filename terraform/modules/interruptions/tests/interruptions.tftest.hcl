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
  mock_resource "aws_cloudwatch_event_rule" {
    defaults = {
      arn = "arn:aws:events:us-east-1:123456789012:rule/one"
    }
  }
  mock_resource "aws_sqs_queue" {
    defaults = {
      arn = "arn:aws:sqs:us-east-1:123456789012:queue"
      id  = "https://sqs.us-east-1.amazonaws.com/123456789012/queue"
    }
  }
  mock_data "aws_iam_policy_document" {
    defaults = {
      json = "{}"
    }
  }
}

variables {
  fleet = "ci-gpu"
}

run "each_pattern_has_a_rule_that_sends_to_the_queue" {
  command = apply

  assert {
    condition     = keys(aws_cloudwatch_event_rule.events) == ["interruptions", "scheduled-changes", "state-changes"]
    error_message = "The rules must be those of event-patterns.json."
  }
  assert {
    condition     = alltrue([for target in aws_cloudwatch_event_target.events : target.arn == aws_sqs_queue.events.arn])
    error_message = "Every rule must send to the queue."
  }
  assert {
    condition     = alltrue([for target in aws_cloudwatch_event_target.events : target.dead_letter_config[0].arn == aws_sqs_queue.dead_letters.arn])
    error_message = "Events that are not delivered must go to the dead letters."
  }
}

run "only_the_rules_may_send" {
  command = apply

  assert {
    condition     = data.aws_iam_policy_document.queue["ci-gpu-interruptions"].statement[0].principals == toset([{ type = "Service", identifiers = toset(["events.amazonaws.com"]) }])
    error_message = "Only EventBridge may send."
  }
  assert {
    condition     = toset(one(data.aws_iam_policy_document.queue["ci-gpu-interruptions"].statement[0].condition).values) == toset([for name in keys(aws_cloudwatch_event_rule.events) : "arn:aws:events:us-east-1:123456789012:rule/${aws_cloudwatch_event_rule.events[name].name}"])
    error_message = "Only rules of this fleet may send."
  }
}

run "a_name_that_fleet_yaml_refuses" {
  command = plan
  variables {
    fleet = "-gpu"
  }
  expect_failures = [var.fleet]
}
