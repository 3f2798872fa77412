"""Chunks sent as soon as links are free."""
