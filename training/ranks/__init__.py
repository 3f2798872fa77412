"""Ranks that replay or train under PyTorch: one process each."""
