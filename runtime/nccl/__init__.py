"""NCCL's own choice: its graph, cost model and constants by version."""
