"""The unmodified controller on virtual time, in a world that is made up."""
