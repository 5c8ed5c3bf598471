output "build_role_arn" {
  description = "The role for `autoscaler images bake`, `publish` and `prune`."
  value       = aws_iam_role.build.arn
}

output "key_arn" {
  description = "The key for encrypted images: `disk_key_arns` of the modules `runner` and `permissions`, also in other accounts."
  value       = aws_kms_key.images.arn
}
