output "queue_url" {
  description = "The URL of the queue: `interruption_queue` of the provider in fleet.yaml."
  value       = aws_sqs_queue.events.url
}

output "queue_arn" {
  description = "The ARN of the queue, from which the controller may read."
  value       = aws_sqs_queue.events.arn
}

output "queue_name" {
  description = "The name of the queue, for alarms."
  value       = aws_sqs_queue.events.name
}

output "dead_letter_queue_name" {
  description = "The name of the queue with the events that were not delivered, for alarms."
  value       = aws_sqs_queue.dead_letters.name
}
