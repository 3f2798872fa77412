"""The process groups of a job: who is in them, which are alike, what they take together."""

__all__: list[str] = []
