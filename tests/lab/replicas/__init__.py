"""Tests of the laboratory with several replicas."""
