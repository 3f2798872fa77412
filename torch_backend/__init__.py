"""The ``tuccl`` backend of torch.distributed: importing this registers it (docs/torch.md).

>>> import tuccl.torch  # doctest: +SKIP
>>> torch.distributed.init_process_group("tuccl")  # doctest: +SKIP
"""

from tuccl.errors import Unavailable

try:
    import torch.distributed as dist
except ImportError:
    raise Unavailable("PyTorch is not installed: pip install torch") from None
if not dist.is_available() or not dist.is_gloo_available():
    raise Unavailable("this PyTorch has no Gloo, which the tuccl backend stands on")

from tuccl.torch.backend import BACKEND, create_group
from tuccl.torch.group import TucclGroup
from tuccl.torch.options import Options

__all__ = ["BACKEND", "Options", "TucclGroup"]

if BACKEND not in dist.Backend.backend_list:
    dist.Backend.register_backend(BACKEND, create_group, extended_api=True, devices=["cpu"])
