"""Opens the files that fleet.yaml names, and reads their keys, tokens and certificates."""
