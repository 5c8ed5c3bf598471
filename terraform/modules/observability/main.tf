# Alarms for what Prometheus cannot see: that the controller is gone, that backups stopped, that notices are not read.
# `autoscaler alerts` prints the rules for everything else.

locals {
  alarms = {
    controller-gone = {
      description = "No controller answers /healthz: no job gets a machine. See docs/terraform.md."
      namespace   = "AWS/NetworkELB"
      metric      = "HealthyHostCount"
      dimensions  = { LoadBalancer = var.load_balancer_arn_suffix, TargetGroup = var.target_group_arn_suffix }
      statistic   = "Maximum"
      period      = 60
      periods     = 5
      comparison  = "LessThanThreshold"
      threshold   = 1
      missing     = "breaching"
    }
    backups-stopped = {
      description = "The controller's host made no backup of the store for three times as long as it should."
      namespace   = var.metrics_namespace
      metric      = "Backups"
      dimensions  = { Fleet = var.fleet }
      statistic   = "Sum"
      period      = try(var.backup_minutes * 60, null)
      periods     = 3
      comparison  = "LessThanThreshold"
      threshold   = 1
      missing     = "breaching"
    }
    notices-not-read = {
      description = "The controller does not read EC2's notices of interruptions."
      namespace   = "AWS/SQS"
      metric      = "ApproximateAgeOfOldestMessage"
      dimensions  = { QueueName = var.queue_name }
      statistic   = "Maximum"
      period      = 60
      periods     = 5
      comparison  = "GreaterThanThreshold"
      threshold   = 120
      missing     = "notBreaching"
    }
    notices-not-delivered = {
      description = "EventBridge could not deliver a notice, or the controller received one 20 times without deleting it."
      namespace   = "AWS/SQS"
      metric      = "ApproximateNumberOfMessagesVisible"
      dimensions  = { QueueName = var.dead_letter_queue_name }
      statistic   = "Maximum"
      period      = 300
      periods     = 1
      comparison  = "GreaterThanThreshold"
      threshold   = 0
      missing     = "notBreaching"
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "controller" {
  for_each            = { for name, alarm in local.alarms : name => alarm if name != "backups-stopped" || var.backup_minutes != null }
  alarm_name          = "${var.fleet}-${each.key}"
  alarm_description   = each.value.description
  namespace           = each.value.namespace
  metric_name         = each.value.metric
  dimensions          = each.value.dimensions
  statistic           = each.value.statistic
  period              = each.value.period
  evaluation_periods  = each.value.periods
  comparison_operator = each.value.comparison
  threshold           = each.value.threshold
  treat_missing_data  = each.value.missing
  alarm_actions       = var.alarm_actions
  ok_actions          = var.alarm_actions
  tags                = var.tags
}
