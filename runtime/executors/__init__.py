"""Executors: the contract, simulated, on threads and over MPI; how runs are timed."""
