"""Room eval."""
