"""The machine's agent: one file of Python's standard library, imported by nothing of ours."""
