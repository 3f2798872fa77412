"""Room sketches."""
