"""One file per schema version. A version that was released never changes."""
