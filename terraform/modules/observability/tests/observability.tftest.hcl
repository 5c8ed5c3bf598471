mock_provider "aws" {}

variables {
  fleet                    = "ci-gpu"
  public_url               = "https://fleet.example.com:8443"
  load_balancer_arn_suffix = "net/ci-gpu/1"
  target_group_arn_suffix  = "targetgroup/ci-gpu/1"
  metrics_namespace        = "gpu-runner-autoscaler"
  queue_name               = "ci-gpu-interruptions"
  dead_letter_queue_name   = "ci-gpu-interruptions-dead-letters"
}

run "silence_is_an_alarm_where_it_means_that_something_is_gone" {
  command = plan

  assert {
    condition = { for name, alarm in aws_cloudwatch_metric_alarm.controller : name => alarm.treat_missing_data } == {
      backups-stopped       = "breaching"
      controller-gone       = "breaching"
      notices-not-delivered = "notBreaching"
      notices-not-read      = "notBreaching"
    }
    error_message = "A controller or a backup that reports nothing must raise an alarm."
  }
  assert {
    condition     = aws_cloudwatch_metric_alarm.controller["backups-stopped"].period == 300
    error_message = "The period must be that of the backups."
  }
}

run "replicas_make_no_backups" {
  command = plan
  variables {
    backup_minutes = null
  }

  assert {
    condition     = !contains(keys(aws_cloudwatch_metric_alarm.controller), "backups-stopped") && length(aws_cloudwatch_metric_alarm.controller) == 3
    error_message = "RDS backs the store up: an alarm for backups of the host would never end."
  }
}

run "prometheus_needs_the_host_alone" {
  command = plan

  assert {
    condition     = yamldecode(output.prometheus_scrape_config)[0].static_configs[0].targets == ["fleet.example.com:8443"]
    error_message = "Targets have no scheme."
  }
}

run "mistakes_are_named" {
  command = plan
  variables {
    alarm_actions = ["team@example.com"]
    public_url    = "fleet.example.com"
  }
  expect_failures = [var.alarm_actions, var.public_url]
}
