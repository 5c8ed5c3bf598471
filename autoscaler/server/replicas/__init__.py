"""What a replica serves that does not lead: it passes requests on to the leader."""
