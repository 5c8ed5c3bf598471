output "address" {
  description = "The host name of the database, in its certificate."
  value       = aws_db_instance.store.address
}

output "store" {
  description = "`store` of fleet.yaml in Kubernetes, with the files that docs/deploy.md puts into the Secret of the controller's pod."
  value       = "${local.url}&sslrootcert=/etc/gpu-runner-autoscaler/secrets/database-ca.pem&password_file=/etc/gpu-runner-autoscaler/secrets/database-password"
}

output "store_of_hosts" {
  description = "`store` of fleet.yaml on the hosts of the module `controller`, which sign in with their IAM role."
  value       = "${local.url}&sslrootcert=/etc/gpu-runner-autoscaler/fleet/database-ca.pem&iam_region=${local.place[3]}"
}

output "user_arn" {
  description = "The user `autoscaler` in IAM policies: `replicas.database_user_arn` of the module `controller`."
  value       = "arn:${local.place[1]}:rds-db:${local.place[3]}:${local.place[4]}:dbuser:${aws_db_instance.store.resource_id}/${local.user}"
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
