"""The worker process, which calls AWS, and the way to it. Only this room imports boto3."""
