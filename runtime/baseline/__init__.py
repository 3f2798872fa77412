"""The defaults a table is compared with, timed alike."""
