"""Studies: evaluations and tasks in an Optuna storage, which any number of processes share."""
