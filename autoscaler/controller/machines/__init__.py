"""The life of a machine: launch, attestation, assignment, notices and termination."""
