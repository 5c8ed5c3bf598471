output "instance_profile" {
  description = "The name of the instance profile: `instance_profile` of the provider in fleet.yaml."
  value       = aws_iam_instance_profile.runner.name
}

output "security_group_id" {
  description = "The machines' security group: `security_groups` of the provider in fleet.yaml."
  value       = aws_security_group.runner.id
}
