"""The ``tuccl`` backend of torch.distributed: importing this registers it (docs/howto/pytorch.md).

>>> import tuccl.torch  # doctest: +SKIP
>>> torch.distributed.init_process_group("tuccl")  # doctest: +SKIP
"""

try:
    import torch.distributed as dist
except ImportError:
    raise ImportError("tuccl.torch needs PyTorch: pip install torch") from None
if not dist.is_available() or not dist.is_gloo_available():
    raise ImportError("tuccl.torch needs a PyTorch with Gloo; this one has none")

from tuccl.torch.backend import BACKEND, create_group
from tuccl.torch.group import TucclGroup
from tuccl.torch.options import Options

__all__ = ["BACKEND", "Options", "TucclGroup"]

if BACKEND not in dist.Backend.backend_list:
    dist.Backend.register_backend(BACKEND, create_group, extended_api=True, devices=["cpu", "cuda"])
