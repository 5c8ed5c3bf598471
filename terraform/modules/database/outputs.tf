output "address" {
  description = "The host name of the database, in its certificate."
  value       = aws_db_instance.store.address
}

output "store" {
  description = "`store` of fleet.yaml, with the files that docs/deploy.md puts into the Secret of the controller's pod."
  value       = "postgresql://autoscaler@${aws_db_instance.store.address}:5432/autoscaler?sslmode=verify-full&sslrootcert=/etc/gpu-runner-autoscaler/secrets/database-ca.pem&password_file=/etc/gpu-runner-autoscaler/secrets/database-password"
}

output "master_user_secret_arn" {
  description = "The secret with the password of the user `postgres`, with which an operator creates the role and the database `autoscaler`."
  value       = aws_db_instance.store.master_user_secret[0].secret_arn
}

output "security_group_id" {
  description = "The security group of the database."
  value       = aws_security_group.store.id
}

output "alarm_names" {
  description = "The names of the alarms."
  value       = [aws_cloudwatch_metric_alarm.storage.alarm_name]
}
