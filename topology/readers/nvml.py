"""Queries NVIDIA's management library (NVML) for NVLinks, and for all where there is no /sys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import ModuleType

from tuccl.topology.readers.classes import PHB, PIX, PXB, SYS, Classes, system_of_classes
from tuccl.topology.readers.xml_tree import Element

_MOST_LINKS = 72
_NPU = 1  # NVML_NVLINK_DEVICE_TYPE_IBMNPU: the CPU of POWER machines
_CLASSES = {"gpu": "0x030200", "switch": "0x068000", "npu": "0x068001"}
# nvmlGpuTopologyLevel_t: on one board, behind one switch, several, a host bridge, a NUMA node.
_LEVELS = {0: PIX, 10: PIX, 20: PXB, 30: PHB, 40: PHB, 50: SYS}


def add_nvlinks(gpus: Mapping[str, Element]) -> tuple[str, ...]:
    """Add a <gpu> with its <nvlink> to each <pci> of ``gpus`` that NVML knows; return warnings.

    Args:
        gpus: the <pci> elements of GPUs, by address.
    """
    warnings: list[str] = []
    if any(pci.get("vendor") == "0x10de" for pci in gpus.values()):
        with _session(warnings) as nvml:
            if nvml is None:
                return tuple(warnings)
            handles = _handles(nvml)
            for busid in gpus.keys() & handles.keys():
                number, _ = handles[busid]
                gpu = Element("gpu", {"dev": str(number)}, gpus[busid].place, gpus[busid].line)
                _describe(nvml, gpu, busid, handles, {name: name for name in handles})
                gpus[busid].children.append(gpu)
    return tuple(warnings)


def nvml_system(place: str) -> Element | None:
    """Return NCCL's <system> of the GPUs that NVML knows, without NICs; None where it knows none.

    Sandboxes show their GPUs to the driver's library alone.
    """
    with _session([]) as nvml:
        handles = _handles(nvml) if nvml else {}
        if nvml is None or not handles:
            return None
        levels = [
            [0 if one is two else _level(nvml, one, two) for two in handles.values()]
            for one in handles.values()
        ]
        no_links = [[0] * len(handles)] * len(handles)
        unknown = [""] * len(handles)
        classes = Classes(len(handles), [0] * len(handles), levels, no_links, unknown, (), unknown)
        system = system_of_classes(classes, place)
        holders = {pci.all("gpu")[0].get("dev"): pci for pci in system.walk() if pci.all("gpu")}
        targets = {busid: holders[str(at)].get("busid") for at, busid in enumerate(handles)}
        for at, busid in enumerate(handles):
            _describe(nvml, holders[str(at)].all("gpu")[0], busid, handles, targets)
        return system
    return None


@contextmanager
def _session(warnings: list[str]) -> Iterator[ModuleType | None]:
    """Open NVML, if it is there; what it refuses becomes a warning."""
    try:
        import pynvml
    except ImportError:
        warnings.append(
            "NVLinks are unknown without NVML (pip install nvidia-ml-py); add them by --profile"
        )
        yield None
        return
    nvml: ModuleType = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        warnings.append(f"NVML does not answer ({str(error)[:100]}): NVLinks are not known")
        yield None
        return
    try:
        yield nvml
    except nvml.NVMLError as error:
        warnings.append(f"NVML failed ({str(error)[:100]}): NVLinks may be missing")
    finally:
        nvml.nvmlShutdown()


def _handles(nvml: ModuleType) -> dict[str, tuple[int, object]]:
    """Return the number and handle of each GPU, by address, in the order of the numbers."""
    handles = {}
    for number in range(nvml.nvmlDeviceGetCount()):
        with suppress(nvml.NVMLError):  # A GPU that has fallen off the bus.
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            handles[_busid(nvml.nvmlDeviceGetPciInfo(handle).busId)] = number, handle
    return handles


def _busid(text: str | bytes) -> str:
    """Return an address as /sys writes it, of NVML's with eight digits for the domain."""
    busid = (text.decode() if isinstance(text, bytes) else text).lower()
    domain, _, rest = busid.partition(":")
    return f"{domain[-4:] if domain.startswith('0000') else domain}:{rest}"


def _level(nvml: ModuleType, one: tuple[int, object], two: tuple[int, object]) -> int:
    return _LEVELS.get(int(nvml.nvmlDeviceGetTopologyCommonAncestor(one[1], two[1])), SYS)


def _describe(
    nvml: ModuleType,
    gpu: Element,
    busid: str,
    handles: Mapping[str, tuple[int, object]],
    targets: Mapping[str, str],
) -> None:
    """Add to <gpu> its compute capability and its NVLinks, whose ends ``targets`` renames."""
    handle = handles[busid][1]
    with suppress(nvml.NVMLError):
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        gpu.attributes["sm"] = str(10 * major + minor)
    for (target, kind), count in _links(nvml, handle, handles).items():
        attributes = {
            "target": targets.get(target, target),
            "count": str(count),
            "tclass": _CLASSES[kind],
        }
        gpu.children.append(Element("nvlink", attributes, gpu.place, gpu.line))


def _links(
    nvml: ModuleType, handle: object, busids: Mapping[str, object]
) -> Counter[tuple[str, str]]:
    """Return how many active NVLinks lead to each address, with what is there."""
    links: Counter[tuple[str, str]] = Counter()
    for link in range(min(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18), _MOST_LINKS)):
        try:
            if nvml.nvmlDeviceGetNvLinkState(handle, link) != nvml.NVML_FEATURE_ENABLED:
                continue
            busid = _busid(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)
        except nvml.NVMLError:  # A link that this GPU does not have, or that the driver hides.
            continue
        kind = "gpu" if busid in busids else "switch"
        with suppress(nvml.NVMLError):
            if nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link) == _NPU:
                kind = "npu"
        # What a container does not see of an NVSwitch is one switch, as NCCL takes it.
        links["fffffff:ffff:ff" if kind == "switch" else busid, kind] += 1
    return links
