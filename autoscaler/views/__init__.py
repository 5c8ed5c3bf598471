"""Answers to what operators ask about a fleet, as values. Commands, console and JSON show the same ones."""
