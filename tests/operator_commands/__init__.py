"""Tests of the commands for operators."""
