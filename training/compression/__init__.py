"""Sparse gradients: how they are exchanged, what that costs, and how much of them is worth sending.

Notes:
    Top-k with all-reduce (AR-Topk) and the choice between it and all-gather are of "Flexible
    Communication for Optimal Distributed Learning over Unpredictable Networks" (2023). The cyclic
    leader of STAR is ScaleCom's (NeurIPS 2020). `tuccl.training.compression.hooks` needs PyTorch.
"""
