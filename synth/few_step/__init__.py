"""Programs of few steps (SCCL): k-synchronous models, found and proved by CP-SAT."""
