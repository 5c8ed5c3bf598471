"""Tests of replicas that pass requests on."""
