"""A table as files that an unmodified runtime loads."""
