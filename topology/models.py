"""Models of GPUs and NICs, by their PCI identifiers."""

from __future__ import annotations

import re

# (vendor, device) -> model; PCI ID repository, https://pci-ids.ucw.cz
_GPUS = {
    (0x10DE, 0x15F9): "P100-SXM2-16GB",
    (0x10DE, 0x1DB0): "V100-SXM3-16GB",
    (0x10DE, 0x1DB1): "V100-SXM2-16GB",
    (0x10DE, 0x1DB4): "V100-PCIE-16GB",
    (0x10DE, 0x1DB5): "V100-SXM2-32GB",
    (0x10DE, 0x1DB6): "V100-PCIE-32GB",
    (0x10DE, 0x1DB8): "V100-SXM3-32GB",
    (0x10DE, 0x20B0): "A100-SXM4-40GB",
    (0x10DE, 0x20B2): "A100-SXM4-80GB",
    (0x10DE, 0x20B5): "A100-PCIE-80GB",
    (0x10DE, 0x20F1): "A100-PCIE-40GB",
    (0x10DE, 0x2324): "H800-SXM5-80GB",
    (0x10DE, 0x2330): "H100-SXM5-80GB",
    (0x10DE, 0x2331): "H100-PCIE-80GB",
    (0x10DE, 0x2335): "H200-SXM5-141GB",
    (0x10DE, 0x2342): "GH200-120GB",
    (0x10DE, 0x2901): "B200-SXM6-180GB",
    (0x10DE, 0x2941): "GB200",
    (0x10DE, 0x1E04): "RTX 2080 Ti",
    (0x10DE, 0x1E07): "RTX 2080 Ti",
    (0x10DE, 0x2204): "RTX 3090",
    (0x10DE, 0x2684): "RTX 4090",
    (0x10DE, 0x26B9): "L40S",
    (0x1002, 0x66A0): "MI50",
    (0x1002, 0x66A1): "MI50",
    (0x1002, 0x738C): "MI100",
    (0x1002, 0x7408): "MI250X",
    (0x1002, 0x740C): "MI250X",
    (0x1002, 0x740F): "MI210",
    (0x1002, 0x74A1): "MI300X",
}
_NICS = {
    (0x15B3, 0x1013): "ConnectX-4",
    (0x15B3, 0x1017): "ConnectX-5",
    (0x15B3, 0x1019): "ConnectX-5 Ex",
    (0x15B3, 0x101B): "ConnectX-6",
    (0x15B3, 0x101D): "ConnectX-6 Dx",
    (0x15B3, 0x1021): "ConnectX-7",
    (0x15B3, 0x1023): "ConnectX-8",
    (0x15B3, 0xA2D6): "BlueField-2",
    (0x15B3, 0xA2DC): "BlueField-3",
    (0x1D0F, 0xEFA0): "EFA",
    (0x1D0F, 0xEFA1): "EFA",
    (0x1D0F, 0xEFA2): "EFA",
}
# GB/s of one NVLink per direction, by the beginning of the model (data sheets).
_NVLINK_GBS = {
    "P100": 20.0,
    "B100": 50.0,
    "B200": 50.0,
    "B300": 50.0,
    "GB": 50.0,
    "sm_10": 50.0,
    "A40": 14.0625,
    "RTX": 14.0625,
    "sm_86": 14.0625,
    "": 25.0,
}
# Family -> compute capability or architecture, and GT/s of a PCIe lane (data sheets).
_FAMILIES: dict[str, tuple[int | str, int]] = {
    "P100": (60, 8),
    "V100": (70, 8),
    "RTX 2080 Ti": (75, 8),
    "A100": (80, 16),
    "RTX 3090": (86, 16),
    "RTX 4090": (89, 16),
    "L40S": (89, 16),
    "H100": (90, 32),
    "H800": (90, 32),
    "H200": (90, 32),
    "H20": (90, 32),
    "GH200": (90, 32),
    "B200": (100, 32),
    "GB200": (100, 32),
    "MI50": ("906", 16),
    "MI100": ("908", 16),
    "MI210": ("90a", 16),
    "MI250X": ("90a", 16),
    "MI300X": ("942", 32),
}
# Multiprocessors or compute units, by the beginning of the model (data sheets).
_MULTIPROCESSORS = {
    "P100": 56,
    "V100": 80,
    "sm_70": 80,
    "RTX 2080 Ti": 68,
    "RTX 3090": 82,
    "RTX 4090": 128,
    "A100": 108,
    "L40S": 142,
    "H100": 132,
    "H100-PCIE": 114,
    "H800": 132,
    "H200": 132,
    "H20-": 78,
    "GH200": 132,
    "B200": 148,
    "GB200": 148,
    "MI50": 60,
    "MI100": 120,
    "MI210": 104,
    "MI250X": 110,
    "MI300X": 304,
}
_CONSOLES = (0x4752, 0x515E, 0x5969)  # ATI Rage XL and ES1000 on server boards
_DISPLAY_VENDORS = (0x10DE, 0x1002)


def gpu_model(vendor: str, device: str, sm: int | None = None, gcn: str = "") -> str | None:
    """Return the model of a GPU, else its architecture, else None.

    >>> gpu_model("0x10de", "0x2330"), gpu_model("", "", sm=70), gpu_model("", "")
    ('H100-SXM5-80GB', 'sm_70', None)
    """
    model_name = _GPUS.get((_number(vendor), _number(device)))
    if model_name or gcn:
        return model_name or f"gfx{gcn_name(gcn)}"
    return f"sm_{sm}" if sm is not None else None


def gpu_architecture(vendor: str, device: str) -> int | str | None:
    """Return NVIDIA's compute capability or AMD's architecture, None where it is unknown.

    >>> gpu_architecture("0x10de", "0x2330"), gpu_architecture("0x1002", "0x74a1")
    (90, '942')
    """
    return _FAMILIES.get(_family(vendor, device), (None, 0))[0]


def gpu_gts(vendor: str, device: str) -> int | None:
    """Return the PCIe speed that a GPU is made for in GT/s a lane, None where it is unknown.

    >>> gpu_gts("0x10de", "0x2330")
    32
    """
    return _FAMILIES.get(_family(vendor, device), (None, None))[1]


def multiprocessors(model: str | None) -> int | None:
    """Return the multiprocessors of a GPU model, None where they are not known.

    >>> multiprocessors("V100-SXM2-32GB"), multiprocessors("H100-PCIE-80GB"), multiprocessors("x")
    (80, 114, None)
    """
    names = [name for name in _MULTIPROCESSORS if f"{model or ''}-".startswith(name)]
    return _MULTIPROCESSORS[max(names, key=len)] if names else None


def has_multicast(model: str | None) -> bool:
    """Return whether NVLink switches add up and multicast for a GPU model (NVLS): from 9.0 on.

    >>> has_multicast("H100-SXM5-80GB"), has_multicast("sm_100"), has_multicast("A100-SXM4-80GB")
    (True, True, False)
    """
    name = (model or "").split("-")[0]
    capability = int(name[3:]) if re.fullmatch(r"sm_\d+", name) else _FAMILIES.get(name, (0, 0))[0]
    return isinstance(capability, int) and capability >= 90


def _family(vendor: str, device: str) -> str:
    return (_GPUS.get((_number(vendor), _number(device))) or "").split("-")[0]


def gcn_name(gcn: str) -> str:
    """Return an AMD architecture as AMD writes it; older RCCL files hold ``910`` for gfx90a.

    >>> gcn_name("910"), gcn_name("gfx942:sramecc+")
    ('90a', '942')
    """
    name = gcn.removeprefix("gfx").split(":")[0]
    return "90a" if name == "910" else name


def nvlink_gbs(model: str | None) -> float:
    """Return the rate in GB/s per direction of one NVLink of a GPU, 25 where the model is unknown.

    >>> nvlink_gbs("GB200"), nvlink_gbs("H200-SXM5-141GB"), nvlink_gbs(None)
    (50.0, 25.0, 25.0)
    """
    prefixes = (prefix for prefix in _NVLINK_GBS if (model or "").startswith(prefix))
    return _NVLINK_GBS[next(prefixes, "")]


def nic_model(vendor: str, device: str) -> str | None:
    """Return the model of a network adapter, None where it is unknown."""
    return _NICS.get((_number(vendor), _number(device)))


def is_gpu_class(pci_class: str, vendor: str = "", device: str = "") -> bool:
    """Return whether a PCI device of that class is a GPU for computing.

    3D controllers (0x0302), AMD's display controllers (0x0380) and processing accelerators
    (0x12) are; VGA controllers (0x0300) only from GPU vendors and not for a server's console.
    """
    text = pci_class.strip().lower()
    is_compute = text.startswith(("0x0302", "0x0380", "0x12"))
    is_display = text.startswith("0x0300") and _number(vendor) in _DISPLAY_VENDORS
    return is_compute or (is_display and _number(device) not in _CONSOLES)


def is_nic_class(pci_class: str) -> bool:
    """Return whether a PCI class is that of a network adapter (Ethernet, InfiniBand)."""
    return pci_class.strip().lower().startswith("0x02")


def _number(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return -1
