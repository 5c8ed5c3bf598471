"""What the hot paths cost. Each program here measures one of them; none is a test."""
