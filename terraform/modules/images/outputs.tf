output "build_role_arn" {
  description = "The role for `autoscaler images bake`, `publish` and `prune`."
  value       = aws_iam_role.build.arn
}

output "key_arn" {
  description = "A key for images: make it the region's default key of EBS before a build, or copy an image with it. `disk_key_arns` of the modules `runner` and `permissions` take it, also in other accounts."
  value       = aws_kms_key.images.arn
}
