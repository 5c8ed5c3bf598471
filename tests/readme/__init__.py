"""Types the README's commands in the laboratory, from an empty folder to a job that succeeds."""
