"""Which queued job gets which machine: the classes of jobs, their supply, and a maximum matching of both."""
