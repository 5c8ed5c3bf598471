"""Reports what happened, as metrics, log lines, traces and rows of history."""
