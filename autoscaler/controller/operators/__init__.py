"""Answers and carries out the requests of operators."""
