"""A module for each verb, and what only verbs of one kind share."""
