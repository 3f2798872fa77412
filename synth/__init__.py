"""Room synth."""
