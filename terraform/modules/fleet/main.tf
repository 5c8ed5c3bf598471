# fleet.yaml: what the other modules made, and the SKUs. The controller's host fetches it from the bucket and
# restarts the controller within a minute of a change.

locals {
  # Keys without a value are left out: fleet.yaml knows no null.
  providers = {
    for name, one in var.providers_ec2 : name => { ec2 = { for key, value in one : key => value if value != null } }
  }
  limits = { for key, value in var.limits : key => value if value != null }

  fleet_yaml = yamlencode({
    fleet = var.fleet
    github = {
      api_url             = var.github.api_url
      apps                = [{ id = var.github.app_id, private_key_file = "secrets/github-app.pem" }]
      webhook_secret_file = "secrets/webhook-secret"
      scopes              = [for scope in var.github.scopes : { for key, value in scope : key => value if value != null }]
    }
    server = {
      listen             = "0.0.0.0:8443"
      webhook_listen     = "0.0.0.0:8080"
      tls                = { certificate_file = "tls/server.pem", key_file = "tls/server.key" }
      public_url         = var.public_url
      admin_token_file   = "secrets/admin-token"
      metrics_token_file = "secrets/metrics-token"
    }
    store     = var.store
    limits    = local.limits
    providers = local.providers
    skus      = var.skus
  })
}

resource "aws_s3_object" "fleet" {
  bucket       = var.bucket
  key          = "fleet.yaml"
  content      = local.fleet_yaml
  content_type = "application/yaml"
  tags         = var.tags
}
