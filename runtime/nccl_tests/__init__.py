"""The user's own nccl-tests as an executor."""
