"""RegistrationBudget a Fleet into a Plan: pure."""
