"""GitHub's job hooks: what they are and what they do."""
