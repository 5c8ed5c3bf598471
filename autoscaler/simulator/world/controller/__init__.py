"""One controller process after another, with its store and its host."""
