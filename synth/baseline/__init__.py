"""What is used today: msccl-default, and NCCL's own rings, trees and sends."""
