"""Tuning of NCCL itself: its own algorithms and knobs, timed by nccl-tests."""
