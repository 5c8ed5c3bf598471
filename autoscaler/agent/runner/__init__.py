"""GitHub's runner: how it is started, watched and stopped."""
