"""Jobs as operators see them: their lists, why they wait, and what they waited for."""
