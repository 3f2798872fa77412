"""Room tuning."""
