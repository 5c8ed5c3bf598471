"""Terraform for the tests: where its parts come from, and the front through which it talks to moto."""
