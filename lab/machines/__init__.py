"""The lab's machines: real agents in processes of their own, or many spoken for by one process."""
