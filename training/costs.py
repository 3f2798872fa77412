"""The cost of a call: by start-up time and rate, and of a parameter server's stages."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tuccl.errors import InputError
from tuccl.training.model import ELEMENT_BYTES

Cost = Callable[[int], float]
_WIRES = {"push": "to servers", "pull": "from servers"}


@dataclass(frozen=True)
class Costs:
    """Time in us by call and bytes; ``alpha_us`` is an all-reduce's start-up.

    Args:
        by_call: us for bytes, for each of the calls that there are.
        alpha_us: what a call takes however small it is.
        label: where the times are from: simulated, measured, given.
        has_program: whether a table's program does the call of so many bytes; else the default.
    """

    by_call: Mapping[str, Cost]
    alpha_us: float
    label: str = "given"
    has_program: Callable[[str, int], bool] = field(default=lambda _, __: False)

    def of(self, call: str) -> Cost:
        """Return the cost of ``call``.

        Raises:
            InputError: there is none.
        """
        if call not in self.by_call:
            raise InputError(f"cost of {call}: none is given; expected one of {list(self.by_call)}")
        return self.by_call[call]

    def scaled(self, factor: float) -> Costs:
        """Return the costs of calls that stand for larger ones: M bytes take what M factor do."""

        def scale(cost: Cost) -> Cost:
            return lambda nbytes: cost(max(round(nbytes * factor), 1) if nbytes else 0)

        return replace(self, by_call={call: scale(cost) for call, cost in self.by_call.items()})

    def wire(self, call: str) -> str:
        """Return what the call occupies: all collectives share a link, servers use both ends."""
        if call.startswith("local"):
            return "links of the host"
        return _WIRES.get(call, "wire")


def linear(alpha_us: float, us_per_byte: float) -> Cost:
    """Return the cost a + b M of M bytes in us, 0 of none.

    >>> linear(10.0, 0.5)(4), linear(10.0, 0.5)(0)
    (12.0, 0.0)
    """
    return lambda nbytes: alpha_us + us_per_byte * nbytes if nbytes else 0.0


def server_costs(
    local: Cost | None,
    worker_gbs: float,
    server_gbs: float,
    hosts: int,
    servers: int,
    alpha_us: float,
) -> dict[str, Cost]:
    """Return the costs of a parameter server's four stages.

    Args:
        local: an all-reduce inside a host, whose halves come before and after; None: one rank.
        worker_gbs: of a worker host's network, each way.
        server_gbs: of a server's.
        hosts: of workers; with one alone nothing is pushed.
        servers: that share the keys.
        alpha_us: of a message each way.

    Notes:
        max(M / B_worker, W M / (S B_server)) each way.
    """
    us_per_byte = max(1 / worker_gbs, hosts / (servers * server_gbs)) / 1e3 if hosts > 1 else 0.0
    half: Cost = (lambda nbytes: local(nbytes) / 2) if local else linear(0.0, 0.0)
    one_way = linear(alpha_us if hosts > 1 else 0.0, us_per_byte)
    return {"local-reduce": half, "push": one_way, "pull": one_way, "local-gather": half}


def c2c_by_time(call_us: float, step_us: float) -> float:
    """Return communication over computing as times: T_c(N) / T_1.

    Notes:
        The speed-up without overlap is N / (1 + C2C), with all of it at best N / max(1, C2C).
    """
    return call_us / step_us


def c2c_by_operations(nbytes: int, ranks: int, batch: int, operations_per_sample: float) -> float:
    """Return communication over computing as the survey prints it: f(N) / (M I), I = C / D.

    D parameters, C operations a sample, M samples a rank. f(N) is not given there; a ring's
    2 (N - 1) / N is taken. Machines do not occur in it, so it compares models on one machine.
    """
    intensity = operations_per_sample / (nbytes / ELEMENT_BYTES)
    return 2 * (ranks - 1) / ranks / (batch * intensity)


def through(points: Sequence[tuple[int, float]]) -> Cost:
    """Return the cost that is straight between measured ``points``, bytes and us, in rising order.

    Below the first it is the first's, above the last it goes on at the last's rate.

    >>> cost = through([(100, 10.0), (200, 30.0)])
    >>> cost(50), cost(150), cost(400)
    (10.0, 20.0, 60.0)
    """
    sizes = [nbytes for nbytes, _ in points]

    def cost(nbytes: int) -> float:
        place = bisect_left(sizes, nbytes)
        if not nbytes:
            return 0.0
        if place == 0:
            return points[0][1]
        if place == len(sizes):
            return points[-1][1] * nbytes / sizes[-1]
        (low, low_us), (high, high_us) = points[place - 1], points[place]
        return low_us + (high_us - low_us) * (nbytes - low) / (high - low)

    return cost
