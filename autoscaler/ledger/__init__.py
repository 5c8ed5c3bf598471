"""RegistrationBudget events into records, indexes, cooldowns and history: pure."""
