output "fleet_yaml" {
  description = "The content of fleet.yaml, which `autoscaler check --skip-files` accepts."
  value       = local.fleet_yaml

  # The controller may start when the object is there.
  depends_on = [aws_s3_object.fleet]
}
