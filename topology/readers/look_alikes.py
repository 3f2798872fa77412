"""Files that people take for descriptions of a machine, and what to do with them instead."""

from __future__ import annotations

import re

import msgspec

_LOOKED_AT = 1 << 16
_KEYS = (
    ({"nnodes", "intranode_sketch"}, "a TACCL sketch; `tuccl synth --sketch FILE` takes it"),
    (
        {"gpus_per_node", "alpha"},
        "a TACCL profile, which has costs but no links; probe the machine, or take --profile NAME",
    ),
    ({"collective", "gpus"}, "an MSCCL++ plan; `tuccl verify` reads those"),
)
_TEXTS = (
    (
        rb"^[ \t]*(?:Machine \(|HostBridge L#|Package L#)",
        "lstopo's text; export it by `lstopo --of xml FILE`",
    ),
    (
        rb"^[A-Z ]*\bTABLE:|^LINK TYPE TABLE",
        "amd-smi's tables; run `rocm-smi --showtopo`, or take RCCL's dump (NCCL_TOPO_DUMP_FILE)",
    ),
    (
        rb"ROCm System Management Interface",
        "of rocm-smi, but no topology; run `rocm-smi --showtopo`",
    ),
    (
        rb"^[ \t]*GPU[0-9]+[ \t]+X\s",
        "of `nvidia-smi topo -m`, but its header is missing or damaged; paste all of it",
    ),
    (
        rb"^\|?[ \t]*NVIDIA-SMI [0-9]|NVSMI LOG",
        "of nvidia-smi, but no matrix; run `nvidia-smi topo -m`",
    ),
    (
        rb"^[ \t]*-?[+\\]?-?\[[0-9a-f]{4}:[0-9a-f]{2}|^[0-9a-f:]{2,12}\.[0-7] .*controller",
        "lspci's output; capture /sys: `tar cf sys.tar /sys/bus/pci/devices /sys/devices/pci*`",
    ),
)


def look_alike(data: bytes) -> str:
    """Return what the content of a file is and what to do, empty where that is unknown.

    >>> look_alike(b'{"nnodes": 2, "intranode_sketch": {}}')
    'a TACCL sketch; `tuccl synth --sketch FILE` takes it'
    """
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        try:
            keys = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).keys()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return ""
        return next((what for required, what in _KEYS if required <= keys), "")
    start = data[:_LOOKED_AT]
    return next((what for pattern, what in _TEXTS if re.search(pattern, start, re.MULTILINE)), "")
