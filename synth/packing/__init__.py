"""Trees packed to the bound, whole or chunk by chunk, and the all-to-all of that kind."""
