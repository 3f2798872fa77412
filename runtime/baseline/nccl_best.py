"""NCCL's own algorithms with the knobs that a user can set for a call, and their times."""

from __future__ import annotations

import math
from weakref import WeakKeyDictionary

from tuccl.errors import Infeasible, InputError
from tuccl.program import Knobs
from tuccl.runtime.baseline.nccl_call import collective_stub, nccl_call
from tuccl.runtime.executors.configured_program import ConfiguredProgram, TimedProgram
from tuccl.runtime.executors.executor import RUNTIME_CHOICE, Executor, Timing
from tuccl.runtime.nccl.choice import NcclChoice, nccl_choice, nccl_protocols
from tuccl.runtime.nccl.graph import nccl_graph
from tuccl.runtime.nccl.knobs import ALGORITHMS, NcclKnobs
from tuccl.runtime.nccl.versions import NCCL_VERSION
from tuccl.synth.model.collective import Collective
from tuccl.topology import Topology

CHANNELS = (1, 2, 4, 8, 16, 32)
_CLOSE = 2.0  # times as long as the fastest: other numbers of channels are worth a try
_SLOWER = 1.2  # times as long at fewer bytes: no longer worth a try
_FEW_RANKS = 32  # of more, whose runs take seconds to simulate, that of the fastest alone
# The call, its bytes, the choice, repeats, and whether the time is exact.
_Key = tuple[Collective, int, NcclChoice, int, bool]
_TIMINGS: WeakKeyDictionary[Executor, dict[_Key, Timing]] = WeakKeyDictionary()  # without noise


def check_nccl_collective(collective: str) -> None:
    """Refuse a collective that NCCL's tuners do not choose for.

    Raises:
        InputError: it is one.
    """
    if collective not in ALGORITHMS:
        raise InputError(
            f"{collective[:30]}: NCCL's tuners choose for {', '.join(ALGORITHMS)} only"
        )


def nccl_configurations(
    topology: Topology, collective: str, version: str = NCCL_VERSION
) -> tuple[NcclKnobs, ...]:
    """Return the algorithms and protocols that NCCL may have here, with channels of its own.

    >>> from tuccl.topology import load_profile
    >>> [k.name for k in nccl_configurations(load_profile("dgx-1v"), "broadcast")]
    ['nccl-Ring-LL', 'nccl-Ring-Simple', 'nccl-Ring-LL128']

    Raises:
        InputError: NCCL's tuners do not choose for the collective.

    Notes:
        NVLS needs GPUs of capability 9.0, NVLSTree several hosts too, PAT one GPU a host;
        CollNet (SHARP) is not tried. LL128 is tried only where NCCL holds it to be safe: requested
        by name it runs anywhere, and corrupts data.
    """
    check_nccl_collective(collective)
    graph, hosts = nccl_graph(topology, version), len(topology.hosts)
    supported = {
        "Ring": True,
        "Tree": True,
        "NVLS": graph.capability >= 90,
        "NVLSTree": graph.capability >= 90 and hosts > 1,
        "PAT": topology.ranks == hosts,
    }
    protocols = nccl_protocols(topology, version)
    return tuple(
        NcclKnobs(algorithm=algorithm, protocol=protocol)
        for algorithm in ALGORITHMS[collective]
        if supported.get(algorithm, False)
        for protocol in (protocols if algorithm in ("Ring", "Tree") else ("Simple",))
    )


def time_nccl(
    executor: Executor,
    topology: Topology,
    call: Collective,
    nbytes: int,
    knobs: NcclKnobs | None = None,
    *,
    repeats: int = 1,
    version: str = NCCL_VERSION,
    best_us: float = math.inf,
) -> TimedProgram:
    """Return the time of NCCL with ``knobs``, None: its own choice; over ``best_us`` maybe roughly.

    On nccl-tests NCCL itself runs, elsewhere what ``version`` would run, as a program; NVLS only in
    the simulator, since no program moves data so.

    Raises:
        Infeasible: NCCL's algorithm makes no program for the collective.
        InputError: NCCL does not have these knobs on this topology.
    """
    if executor.runs_nccl:
        name, sms = (knobs.name, knobs.channels) if knobs else ("NCCL's own", 0)
        loop = RUNTIME_CHOICE._replace(nccl=knobs)
        own = ConfiguredProgram(collective_stub(call), Knobs(), loop, name)
        return own.timed(own.on(executor, nbytes, root=call.root, repeats=repeats), sms, knobs)
    choice = _choice(executor, topology, call, nbytes, knobs, version)
    ran = nccl_call(topology, call, nbytes, choice)
    key = call, nbytes, choice, repeats, math.isinf(best_us)
    known: dict[_Key, Timing] = {}
    if executor.deterministic and executor.topology is topology:
        known = _TIMINGS.setdefault(executor, known)
    if key not in known:
        known[key] = executor.of_defaults.time_against(
            best_us,
            ran.program,
            ran.knobs,
            nbytes,
            root=call.root,
            repeats=repeats,
            loop=ran.loop,
        )
    # NCCL's kernels run one thread block a channel.
    return ran.timed(known[key], choice.channels, knobs)


def nccl_timings(
    executor: Executor,
    topology: Topology,
    call: Collective,
    nbytes: int,
    version: str = NCCL_VERSION,
) -> list[TimedProgram]:
    """Return the times of NCCL's own algorithms with a user's knobs, the fastest first.

    Each algorithm and protocol runs with NCCL's own channels; where times have no noise the faster
    ones (of more than 32 ranks the fastest) also with more and with fewer of ``CHANNELS``, as long
    as that is faster. What takes longer for fewer bytes than NCCL's own choice for these does not
    run there. Empty for collectives that NCCL does by grouped sends, which no tuner steers.
    """
    if call.name not in ALGORITHMS:
        return []
    own_us = math.inf
    if executor.deterministic:
        own_us = _us(time_nccl(executor, topology, call, nbytes, version=version))

    def timed(knobs: NcclKnobs) -> list[TimedProgram]:
        try:
            choice = _choice(executor, topology, call, nbytes, knobs, version)
            if _known_us(executor, call, nbytes, choice) > _SLOWER * own_us:
                return []
            own = time_nccl(
                executor, topology, call, nbytes, knobs, version=version, best_us=own_us
            )
            return [own]
        except (Infeasible, InputError):
            return []

    own = [t for k in nccl_configurations(topology, call.name, version) for t in timed(k)]
    timings = sorted(own, key=_us)
    close = _CLOSE if topology.ranks <= _FEW_RANKS else 1.0
    for each in list(timings) if executor.deterministic else ():
        if each.nccl and _us(each) <= close * _us(timings[0]):
            more = [n for n in CHANNELS if n > each.sms]
            fewer = [n for n in reversed(CHANNELS) if n < each.sms]
            for counts in (more, fewer):
                last = each
                for count in counts:
                    found = timed(_with_channels(each.nccl, count))
                    timings += found
                    if not found or _us(found[0]) > _us(last):
                        break
                    [last] = found
    return sorted(timings, key=lambda timing: (_us(timing), timing.sms))


def _choice(
    executor: Executor,
    topology: Topology,
    call: Collective,
    nbytes: int,
    knobs: NcclKnobs | None,
    version: str,
) -> NcclChoice:
    return nccl_choice(
        topology,
        call.name,
        nbytes,
        version,
        algorithm=knobs.algorithm if knobs else None,
        protocol=knobs.protocol if knobs else None,
        channels=(knobs.channels if knobs else 0) or None,
        nvls=executor.simulated,
    )


def _known_us(executor: Executor, call: Collective, nbytes: int, choice: NcclChoice) -> float:
    """The most that the same algorithm, protocol and channels take for no more bytes, in us."""
    wanted = choice.algorithm, choice.protocol, choice.channels
    return max(
        (
            timing.us
            for (of, size, other, *_), timing in _TIMINGS.get(executor, {}).items()
            if (of, other.algorithm, other.protocol, other.channels) == (call, *wanted)
            and size <= nbytes
        ),
        default=0.0,
    )


def _with_channels(knobs: NcclKnobs, channels: int) -> NcclKnobs:
    return NcclKnobs(algorithm=knobs.algorithm, protocol=knobs.protocol, channels=channels)


def _us(timing: TimedProgram) -> float:
    return timing.timing.us
