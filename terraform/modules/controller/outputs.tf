output "public_url" {
  description = "The URL under which machines and operators reach the controller: `server.public_url` of fleet.yaml."
  value       = "https://${var.domain_name}:8443"
}

output "webhook_url" {
  description = "The webhook URL of the GitHub App."
  value       = "https://${var.domain_name}/webhook"
}

output "load_balancer_dns_name" {
  description = "The name of the load balancer, for the DNS record of `domain_name` without `zone_id`."
  value       = aws_lb.controller.dns_name
}

output "bucket" {
  description = "The bucket with fleet.yaml and the backups."
  value       = aws_s3_bucket.data.id
}

output "role_name" {
  description = "The name of the host's role."
  value       = aws_iam_role.controller.name
}

output "security_group_id" {
  description = "The security group of the host: `client_security_group_ids` of the module `database`, with `replicas`."
  value       = aws_security_group.controller.id
}

output "autoscaling_group_name" {
  description = "The name of the group of the host, for alarms."
  value       = aws_autoscaling_group.controller.name
}

output "load_balancer_arn_suffix" {
  description = "The load balancer as CloudWatch's metrics name it."
  value       = aws_lb.controller.arn_suffix
}

output "target_group_arn_suffix" {
  description = "The target group of the machines' port as CloudWatch's metrics name it."
  value       = aws_lb_target_group.controller["machines"].arn_suffix
}

output "metrics_namespace" {
  description = "The CloudWatch namespace in which the host counts backups (`Backups`, by `Fleet`)."
  value       = local.namespace
}

output "log_group_name" {
  description = "The log group of the controller."
  value       = aws_cloudwatch_log_group.controller.name
}
