"""Non-negative matrix factorization."""
