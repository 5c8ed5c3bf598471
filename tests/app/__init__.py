"""The composition root: what it says when a part cannot be used."""
