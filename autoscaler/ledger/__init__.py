"""The ledger: pure code that applies events to records, indexes, cooldowns and history."""
