"""Several controllers on one PostgreSQL store, behind a balancer, and what makes their leader change."""
