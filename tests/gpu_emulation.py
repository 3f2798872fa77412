"""The interpreter of GPUs, played on this CPU, by libtuccl-cuda-host.so."""

from __future__ import annotations

import ctypes
from pathlib import Path

from tuccl import _native
from tuccl.errors import InputError, Stuck
from tuccl.execution import Call, RankResult, read_result

LIBRARY = Path(_native.__file__).parent / "cuda" / "libtuccl-cuda-host.so"


def emulate_gpus(
    call: Call, timeout_s: float, threads: int = 8, cores: int = 2
) -> list[RankResult]:
    """Return each rank's result of the checked runs; ``threads`` a block, on ``cores`` at least."""
    library, text = ctypes.CDLL(str(LIBRARY)), ctypes.c_void_p()
    library.tucclFree.argtypes = [ctypes.c_void_p]
    request = call.text.encode()
    code = library.tucclEmulateGpus(
        *(request, ctypes.c_size_t(len(request)), threads, cores, ctypes.c_double(timeout_s)),
        ctypes.byref(text),
    )
    answer = (ctypes.cast(text, ctypes.c_char_p).value or b"").decode()
    library.tucclFree(text)
    if code != 0:
        raise Stuck(answer) if code == 2 else InputError(answer)
    return [read_result(part) for part in answer.split("end\n") if part]
