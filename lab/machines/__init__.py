"""The lab's machines: real agents in their own processes, or many simulated by one process."""
