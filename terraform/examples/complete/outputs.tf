output "fleet_yaml" {
  description = "The content of fleet.yaml."
  value       = module.fleet.fleet_yaml
}

output "webhook_url" {
  description = "The webhook URL of the GitHub App."
  value       = module.controller.webhook_url
}

output "load_balancer_dns_name" {
  description = "The target of the DNS record of `domain_name`, without `zone_id`."
  value       = module.controller.load_balancer_dns_name
}

output "prometheus_scrape_config" {
  description = "An entry of `scrape_configs` in prometheus.yml."
  value       = module.observability.prometheus_scrape_config
}

output "build_role_arn" {
  description = "The role for `autoscaler images bake`, `publish` and `prune`; null without `builder_arns`."
  value       = one(module.images[*].build_role_arn)
}
