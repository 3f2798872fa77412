"""The program (MSCCL's XML as a value), the knobs that it runs with, and its proof."""

from tuccl._native import (
    Finding,
    Gpu,
    Knobs,
    Program,
    Step,
    ThreadBlock,
    VerifyReport,
    default_buffer_bytes,
    element_bytes,
    max_safe_bytes,
    max_threads,
    parse_xml,
    replicate,
    to_xml,
    verify,
)

__all__ = [
    "Finding",
    "Gpu",
    "Knobs",
    "Program",
    "Step",
    "ThreadBlock",
    "VerifyReport",
    "default_buffer_bytes",
    "element_bytes",
    "max_safe_bytes",
    "max_threads",
    "parse_xml",
    "replicate",
    "to_xml",
    "verify",
]
