"""Asks NVIDIA's management library (NVML) for what /sys does not tell: NVLinks, GPU numbers."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from types import ModuleType

from tuccl.topology.readers.xml_tree import Element

__all__ = ["add_nvlinks"]

_MOST_LINKS = 72
_NPU = 1  # NVML_NVLINK_DEVICE_TYPE_IBMNPU: the CPU of POWER machines
_CLASSES = {"gpu": "0x030200", "switch": "0x068000", "npu": "0x068001"}


def add_nvlinks(gpus: dict[str, Element]) -> tuple[str, ...]:
    """Add a <gpu> with its <nvlink> to each <pci> of ``gpus`` that NVML knows; return warnings.

    Args:
        gpus: the <pci> elements of GPUs, by address.
    """
    if not any(pci.get("vendor") == "0x10de" for pci in gpus.values()):
        return ()
    try:
        import pynvml
    except ImportError:
        return ("NVML is not asked; pip install tuccl[nvml] makes it tell NVLinks",)
    nvml: ModuleType = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return (f"NVML does not answer ({str(error)[:100]}): NVLinks are not known",)
    try:
        handles = _handles(nvml)
        for busid in gpus.keys() & handles.keys():
            number, handle = handles[busid]
            pci = gpus[busid]
            attributes = {"dev": str(number), **_capability(nvml, handle)}
            gpu = Element("gpu", attributes, pci.place, pci.line)
            for (target, kind), count in _links(nvml, handle, set(handles)).items():
                link = {"target": target, "count": str(count), "tclass": _CLASSES[kind]}
                gpu.children.append(Element("nvlink", link, pci.place, pci.line))
            pci.children.append(gpu)
    except nvml.NVMLError as error:
        return (f"NVML failed ({str(error)[:100]}): NVLinks may be missing",)
    finally:
        nvml.nvmlShutdown()
    return ()


def _handles(nvml: ModuleType) -> dict[str, tuple[int, object]]:
    """Return the number and handle of each GPU, by address."""
    handles = {}
    for number in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            handles[_busid(nvml.nvmlDeviceGetPciInfo(handle).busId)] = number, handle
        except nvml.NVMLError:  # A GPU that has fallen off the bus.
            continue
    return handles


def _busid(text: str | bytes) -> str:
    """Return an address as /sys writes it, of NVML's with eight digits for the domain."""
    busid = (text.decode() if isinstance(text, bytes) else text).lower()
    domain, _, rest = busid.partition(":")
    return f"{domain[-4:] if domain.startswith('0000') else domain}:{rest}"


def _capability(nvml: ModuleType, handle: object) -> dict[str, str]:
    try:
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    except nvml.NVMLError:
        return {}
    return {"sm": str(10 * major + minor)}


def _links(nvml: ModuleType, handle: object, busids: set[str]) -> Counter[tuple[str, str]]:
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
        links[busid if kind != "switch" else "fffffff:ffff:ff", kind] += 1
    return links
