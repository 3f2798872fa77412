"""Machine classes: what the executor costs on one kind of GPU, each constant with its source."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from tuccl.errors import InputError
from tuccl.simulation import MachineClass, ProtocolCosts
from tuccl.topology.graph import Topology

MACHINES = (
    *("v100", "a100", "h100", "b200", "mi250x", "mi300x", "rtx"),
    *("plain", "ideal", "emulated"),
    *("mscclpp-a100", "mscclpp-h100"),
    *("cuda-a100", "cuda-h100"),
)

_FOLDER = Path(__file__).parent / "machines"
_NO_LIMIT = {"sm_count", "fifo_slots"}


class Constant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number and where it is from; ``value`` None is "no limit" where a limit is meant.

    ``prior`` is what it was before it was fitted to measurements, which ``source`` names.
    """

    value: float | None
    source: str
    prior: float | None = None


class Constants(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Costs that all protocols share, in us; efficiencies are fractions of nominal rates."""

    sm_count: Constant
    fifo_slots: Constant
    host_call_us: Constant
    host_gpu_us: Constant
    host_channel_us: Constant
    start_us: Constant
    start_graph_us: Constant
    nvlink_efficiency: Constant
    pcie_efficiency: Constant
    cpu_efficiency: Constant
    network_efficiency: Constant
    nvls_efficiency: Constant
    dependency_us: Constant
    local_us: Constant
    nvls_us: Constant
    net_message_us: Constant
    net_latency_us: Constant
    net_ll_us: Constant
    nic_switch_us: Constant


class ProtocolConstants(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Costs of a protocol for a thread block: us, and GB/s of user bytes with enough threads."""

    transfer_us: Constant
    slice_us: Constant
    hop_us: Constant
    threads_sat: Constant
    trip_latency: Constant
    link_efficiency: Constant
    send_gbs: Constant
    recv_gbs: Constant
    rcs_gbs: Constant
    rrs_gbs: Constant
    rrc_gbs: Constant
    rrcs_gbs: Constant
    copy_gbs: Constant
    reduce_gbs: Constant


class Protocols(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The constants by protocol."""

    Simple: ProtocolConstants
    LL: ProtocolConstants
    LL128: ProtocolConstants


class MachineFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A ``tuccl-machine/1`` file: ``gpu_models`` are the beginnings of the models it is for."""

    format: Literal["tuccl-machine/1"]
    name: str
    gpu_models: tuple[str, ...]
    constants: Constants
    protocols: Protocols


def read_machine(name_or_path: str | Path) -> MachineFile:
    """Return the constants and sources of a class that ships, by name, or of a file, by path.

    >>> read_machine("h100").constants.sm_count.value
    132.0

    Raises:
        InputError: no such class or file, or the file is not a sound ``tuccl-machine/1``.
    """
    text = str(name_or_path)
    path = _FOLDER / f"{text}.json" if text in MACHINES else Path(text)
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "cannot be read"
        raise InputError(
            f"machine class {text[:200]!r}: {why}; expected one of {', '.join(MACHINES)}, or a file"
        ) from None
    return _decode(data, text[:200])


def load_machine(name_or_path: str | Path) -> MachineClass:
    """Return the class of that name, or of the ``tuccl-machine/1`` file at that path.

    >>> load_machine("ideal").simple.send_gbs
    inf

    Raises:
        InputError: see `read_machine`; or a constant is out of its domain.
    """
    return _build(read_machine(name_or_path), str(name_or_path)[:200])


def machine_class(file: MachineFile) -> MachineClass:
    """Return the class that the constants of ``file`` make.

    >>> machine_class(read_machine("h100")).sm_count
    132

    Raises:
        InputError: a constant is out of its domain.
    """
    return _build(file, file.name)


def encode_machine(file: MachineFile) -> bytes:
    """Return the class as a ``tuccl-machine/1`` file, a constant a few lines.

    >>> file = read_machine("v100")
    >>> msgspec.json.decode(encode_machine(file), type=MachineFile) == file
    True
    """
    tables = [file.constants, *(getattr(file.protocols, p) for p in Protocols.__struct_fields__)]
    fields = [
        {
            name: {
                key: value
                for key, value in msgspec.structs.asdict(getattr(table, name)).items()
                if key != "prior" or value is not None
            }
            for name in table.__struct_fields__
        }
        for table in tables
    ]
    document = {
        "format": file.format,
        "name": file.name,
        "gpu_models": file.gpu_models,
        "constants": fields[0],
        "protocols": dict(zip(Protocols.__struct_fields__, fields[1:], strict=True)),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def machine_of(topology: Topology) -> MachineClass:
    """Return the class of the GPUs of a topology; else ``plain`` under a name that says so.

    Notes:
        A class fits a model that begins with one of its ``gpu_models``. GPUs of several classes
        get ``plain``.
    """
    name = class_name_of(topology)
    if name != "plain":
        return load_machine(name)
    models = sorted({gpu.model or "unknown GPU" for gpu in topology.gpus})
    plain = read_machine("plain")
    label = f"plain (no class for {', '.join(models)[:60]})"
    return _build(msgspec.structs.replace(plain, name=label), "plain")


def plan_machine_of(topology: Topology) -> MachineClass:
    """Return the class of MSCCL++'s executor for the GPUs of a topology.

    There are two; GPUs without one of their own get the nearest, under a name that says so.

    >>> from tuccl.topology import load_profile
    >>> plan_machine_of(load_profile("ndv4")).name
    'mscclpp-a100'
    """
    return _nearest("mscclpp", topology)


def interpreter_machine_of(topology: Topology) -> MachineClass:
    """Return the class of tuccl's own interpreter for the GPUs of a topology.

    Its constants are estimates: none was fitted to a run. There are two; GPUs without one of their
    own get the nearest, under a name that says so.

    >>> from tuccl.topology import load_profile
    >>> interpreter_machine_of(load_profile("dgx-h200")).name
    'cuda-h100'

    Raises:
        InputError: the topology has several hosts; the interpreter runs on one.
    """
    if len(topology.hosts) > 1:
        raise InputError(
            f"topology {topology.name[:40]!r}: {len(topology.hosts)} hosts; tuccl's interpreter "
            "runs on the GPUs of one: expected one host"
        )
    return _nearest("cuda", topology)


def _nearest(runtime: str, topology: Topology) -> MachineClass:
    """Return the runtime's class of the generation that the GPUs are of, or are next to."""
    gpus = class_name_of(topology)
    name = f"{runtime}-{'h100' if gpus in ('h100', 'b200') else 'a100'}"
    file = read_machine(name)
    label = name if name.endswith(gpus) else f"{name} (none for {gpus})"
    return _build(msgspec.structs.replace(file, name=label), name)


def class_name_of(topology: Topology) -> str:
    """Return the name of the class that fits the GPUs of ``topology``, ``plain`` where none does.

    >>> from tuccl.topology import load_profile
    >>> class_name_of(load_profile("ndv5"))
    'h100'
    """
    names = {_class_for(gpu.model or "unknown GPU") for gpu in topology.gpus}
    return (names.pop() if len(names) == 1 else None) or "plain"


@cache
def _prefixes() -> tuple[tuple[str, str], ...]:
    return tuple((prefix, name) for name in MACHINES for prefix in read_machine(name).gpu_models)


def _class_for(model: str) -> str | None:
    return next((name for prefix, name in _prefixes() if model.startswith(prefix)), None)


def _decode(data: bytes, path: str) -> MachineFile:
    try:
        return msgspec.json.decode(data, type=MachineFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: {error}; expected a tuccl-machine/1 file") from None


def _build(file: MachineFile, path: str) -> MachineClass:
    shared = _numbers(file.constants, path, "$.constants")
    protocols = {
        name: ProtocolCosts(**_numbers(getattr(file.protocols, name), path, f"$.protocols.{name}"))
        for name in Protocols.__struct_fields__
    }
    try:
        return MachineClass(
            file.name,
            sm_count=int(shared.pop("sm_count")),
            fifo_slots=int(shared.pop("fifo_slots")),
            simple=protocols["Simple"],
            ll=protocols["LL"],
            ll128=protocols["LL128"],
            **shared,
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _numbers(constants: Constants | ProtocolConstants, path: str, where: str) -> dict[str, float]:
    return {
        field: _number(field, getattr(constants, field).value, f"{path}: {where}.{field}.value")
        for field in constants.__struct_fields__
    }


def _number(field: str, value: float | None, where: str) -> float:
    if field in _NO_LIMIT:
        limit = 0.0 if value is None else value
        if not 0 <= limit < 1 << 20 or limit != int(limit):
            raise InputError(f"{where}: {value}: expected a whole number, or null for no limit")
        return float(limit)
    if value is None and field.endswith("_gbs"):
        return math.inf
    if value is None:
        raise InputError(f"{where}: null: expected a number")
    return float(value)
