"""A release: its version, its files and its bill of materials. `make release-check` builds it whole."""
