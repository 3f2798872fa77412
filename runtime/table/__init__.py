"""The lookup table: entries, files, locks, selection, what jobs observed."""
