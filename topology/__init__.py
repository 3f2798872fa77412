"""Room topology."""
