"""Single values: quantities, names, references of images."""
