output "prometheus_scrape_config" {
  description = "An entry of `scrape_configs` in prometheus.yml. `metrics-token` is a file with the token, beside prometheus.yml."
  value = yamlencode([{
    job_name       = "gpu-runner-autoscaler"
    scheme         = "https"
    metrics_path   = "/metrics"
    authorization  = { credentials_file = "metrics-token" }
    static_configs = [{ targets = [trimprefix(var.public_url, "https://")] }]
  }])
}

output "alarm_names" {
  description = "The names of the alarms."
  value       = sort([for alarm in aws_cloudwatch_metric_alarm.controller : alarm.alarm_name])
}
