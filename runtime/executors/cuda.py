"""Real data between GPUs of this machine, by tuccl's own interpreter."""

from __future__ import annotations

import ctypes
import os
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tuccl.errors import InputError, Stuck, TucclError, Unavailable
from tuccl.execution import Call, RankResult, read_result
from tuccl.installation import built_folder
from tuccl.runtime.executors.measure import DataExecutor, Effort, Operands

_LIBRARY = "libtuccl-cuda.so"
_NCCL_LIBRARY = "libnccl-tuccl.so"
_STUCK = 2


def cuda_library() -> Path:
    """Return the path of the library with the kernels.

    Raises:
        Unavailable: it was not built here.
    """
    return _existing(os.environ.get("TUCCL_CUDA_LIBRARY", ""))


@cache  # a communicator looks here at every call
def _existing(name: str) -> Path:
    path = Path(name) if name else built_folder("cuda") / _LIBRARY
    if not path.is_file():
        named = " (TUCCL_CUDA_LIBRARY names it)" if name else ""
        raise Unavailable(f"{path}: no such library{named}; `make cuda` builds it where nvcc is")
    return path


def nccl_library() -> Path:
    """Return the path of the library that has NCCL's functions, beside that one.

    Raises:
        Unavailable: it was not built here.
    """
    path = cuda_library().with_name(_NCCL_LIBRARY)
    if not path.is_file():
        raise Unavailable(f"{path}: no such library; `make cuda` builds it where nvcc is")
    return path


def loaded_library() -> ctypes.CDLL:
    """Return that library, loaded.

    Raises:
        Unavailable: it was not built here, or cannot be loaded.
    """
    return _loaded(cuda_library())


@cache
def _loaded(path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise Unavailable(f"{path}: cannot be loaded: {error}") from error
    text = ctypes.POINTER(ctypes.c_void_p)
    if not hasattr(library, "tucclDevices"):
        raise Unavailable(f"{path}: is not tuccl's library; correct or unset TUCCL_CUDA_LIBRARY")
    library.tucclDevices.argtypes = [text]
    library.tucclRunCall.argtypes = [
        *(ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_int), ctypes.c_int),
        *(ctypes.c_double, text),
    ]
    library.tucclFree.argtypes = [ctypes.c_void_p]
    library.tucclFree.restype = None
    library.tucclGetLastError.argtypes = [ctypes.c_void_p]
    library.tucclGetLastError.restype = ctypes.c_char_p
    return library


def _taken(library: ctypes.CDLL, text: ctypes.c_void_p) -> str:
    """Return the text that a function of the library gave, and free it."""
    data = ctypes.cast(text, ctypes.c_char_p).value or b""
    library.tucclFree(text)
    return data.decode(errors="replace")


def cuda_devices() -> tuple[str, ...]:
    """Return the names of this machine's GPUs, by CUDA's numbers.

    Raises:
        Unavailable: there is no library, no driver or no GPU.
    """
    library, text = loaded_library(), ctypes.c_void_p()
    count = library.tucclDevices(ctypes.byref(text))
    answer = _taken(library, text)
    if count < 1:
        raise Unavailable(f"--on cuda: no GPU ({answer or 'none is here'}); use --on sim")
    return tuple(answer.splitlines())


class CudaExecutor(DataExecutor):
    """Runs programs on this machine's GPUs, several ranks on one where ranks outnumber them.

    All ranks are in this process; GPUs reach each other's memory. Every knob acts in each call.
    """

    name = "cuda"

    def __init__(
        self,
        ranks: int,
        operands: Operands | None = None,
        effort: Effort | None = None,
        timeout_s: float = 30.0,
        devices: Sequence[int] = (),
    ) -> None:
        """Prepare ``ranks`` ranks; a run that takes longer than ``timeout_s`` is stopped.

        Rank r is on the r-th of ``devices``, round and round; () is all of this machine.

        Raises:
            InputError: there is no such device.
            Unavailable: there is no GPU, or no library with the kernels.
        """
        super().__init__(ranks, operands, effort)
        self._timeout_s = timeout_s
        names = cuda_devices()
        self._devices = tuple(devices) or tuple(range(len(names)))
        if absent := [device for device in self._devices if not 0 <= device < len(names)]:
            raise InputError(f"GPU {absent[0]}: expected 0 to {len(names) - 1}")
        self._names = [names[device] for device in self._devices]

    @property
    def label(self) -> str:
        """That it measures, and on what."""
        gpus = Counter(self._names[rank % len(self._names)] for rank in range(self.ranks))
        ranks = ", ".join(f"{count} on {name}" for name, count in gpus.items())
        return f"measured on this machine's GPUs (ranks: {ranks})"

    def run(self, call: Call) -> Sequence[RankResult]:
        """Return each rank's result of one call."""
        library, text = loaded_library(), ctypes.c_void_p()
        request = call.text.encode()
        devices = (ctypes.c_int * len(self._devices))(*self._devices)
        code = library.tucclRunCall(
            *(request, len(request), devices, len(devices), self._timeout_s, ctypes.byref(text))
        )
        answer = _taken(library, text)
        if code == _STUCK:
            raise Stuck(answer)
        if code != 0:
            raise InputError(answer) if "expected" in answer else TucclError(answer)
        return [read_result(part) for part in answer.split("end\n") if part]
