"""Baselines: msccl-default, and NCCL's own rings, trees and sends."""
