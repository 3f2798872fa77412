"""A job on a cluster: launching, plugins, what its log proves."""
