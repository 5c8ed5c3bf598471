"""The boot of a machine: the operator's script, the proof of its identity, the controller's protocol."""
