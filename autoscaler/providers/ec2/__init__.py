"""EC2 as a provider of machines. boto3 stands in `worker` alone, in a process of its own."""
