"""Tests of autoscaler/doctor."""
