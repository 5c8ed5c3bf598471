output "policy_arn" {
  description = "The ARN of the managed policy, for the controller's role."
  value       = aws_iam_policy.controller.arn
}

output "policy" {
  description = "The policy as JSON."
  value       = aws_iam_policy.controller.policy
}
