"""The EC2 provider. Only `worker`, which runs as a separate process, imports boto3."""
