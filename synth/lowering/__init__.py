"""From a schedule to a Program within the dialect's limits."""
