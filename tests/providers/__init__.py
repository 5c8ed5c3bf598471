"""Tests of providers: the contract of all providers, and EC2."""
