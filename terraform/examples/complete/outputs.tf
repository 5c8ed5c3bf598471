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

output "database_address" {
  description = "The host name of the database; null without `replicas`."
  value       = one(module.database[*].address)
}

output "database_master_user_secret_arn" {
  description = "The secret with the password of the database's user `postgres`; null without `replicas`."
  value       = one(module.database[*].master_user_secret_arn)
}

output "prometheus_scrape_config" {
  description = "An entry of `scrape_configs` in prometheus.yml."
  value       = module.observability.prometheus_scrape_config
}

output "build_role_arn" {
  description = "The role for `autoscaler images bake`, `publish` and `prune`; null without `builder_arns`."
  value       = one(module.images[*].build_role_arn)
}
