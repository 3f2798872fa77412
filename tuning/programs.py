"""Programs by plan, protocol and channels: synthesized once, verified before they are timed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, cast

import msgspec

from tuccl._native import Knobs, Program, to_xml, verify
from tuccl.errors import Infeasible, InputError
from tuccl.runtime.nccl_graph import nccl_graph
from tuccl.sketches import Sketch
from tuccl.synth import METHODS, Collective, Schedule, lower, msccl_default, synthesize
from tuccl.topology import Topology, path, signature
from tuccl.tuning.knob_grid import CHANNELS, PROTOCOLS
from tuccl.tuning.space import CHUNKINGS, Channels, Plan

__all__ = ["DEFAULT_METHODS", "Programs", "VerifiedProgram", "ll128_is_safe"]
