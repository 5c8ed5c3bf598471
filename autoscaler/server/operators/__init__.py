"""The endpoints of operators: /admin, its questions, and the console."""
