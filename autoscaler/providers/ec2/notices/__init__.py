"""Receives events about machines from an SQS queue."""
