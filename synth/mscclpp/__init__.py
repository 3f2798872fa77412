"""From a program to an execution plan of MSCCL++."""
