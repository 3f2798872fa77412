"""An executor of groups that call at once, for searches over one group's programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from tuccl.errors import InputError
from tuccl.groups.equivalence import group_hops, sharers
from tuccl.groups.layout import Groups
from tuccl.mscclpp import ExecutionPlan
from tuccl.program import Program
from tuccl.runtime import Executor, SimExecutor
from tuccl.runtime.executors.executor import Call
from tuccl.runtime.executors.plan_sim import PlanSimExecutor, ranks_per_node
from tuccl.runtime.executors.sim import GroupCall
from tuccl.simulation import MachineClass, Network
from tuccl.topology import Topology, keep_gpus
from tuccl.topology.relays import Hop


class GroupExecutor(SimExecutor):
    """Times a program as all groups of a kind run it at the same time, on the whole machine.

    To a search it is an executor of one group's part. Sketches are made for the part's share of the
    links: their rates over the number of groups that use them.
    """

    def __init__(
        self,
        topology: Topology,
        groups: Groups,
        orbit: Sequence[int],
        company: Sequence[GroupCall] = (),
        launch: str = "mpi",
    ) -> None:
        """Prepare for the groups of an orbit.

        Args:
            topology: The whole machine.
            groups: Ranks of each group of the kind. Those that are not in the orbit run the
                program too: they are there, but their times do not count.
            orbit: Numbers of the groups that are alike; the first gives the part.
            company: Calls of other groups that begin at the same time.
            launch: As in `SimExecutor`.
        """
        super().__init__(keep_gpus(topology, groups[orbit[0]]), launch=launch)
        self._whole = SimExecutor(topology, launch=launch)
        hops = group_hops(topology, groups)
        # The others of the orbit end when the first does; company may lie beside any of them.
        near = range(len(groups)) if company else sharers(hops)[orbit[0]]
        self._counted = [n for n, number in enumerate(near) if number in orbit]
        self._groups = [groups[number] for number in near]
        self._company = tuple(company)
        self._planned = share(self._topology, hops)

    def of_part(self, part: Topology) -> None:
        """Nothing: the others of the kind are not on a part."""

    @property
    def label(self) -> str:
        """That it simulates, on what, and how many groups call at once."""
        return f"{super().label}, {self.at_once}"

    @property
    def at_once(self) -> str:
        """Text of the groups that call at once, and what is beside them."""
        beside = f" beside {len(self._company)} calls of others" if self._company else ""
        return f"{self.concurrent} groups at once{beside}"

    @property
    def concurrent(self) -> int:
        """The groups that are simulated: those that share links with the first, itself counted."""
        return len(self._groups)

    def _timer(
        self, call: GroupCall, machine: MachineClass, exact_to_us: float
    ) -> Callable[..., float]:
        def time_us(_: Network) -> float:
            return self.slowest_us(call)

        return time_us

    def slowest_us(self, call: GroupCall) -> float:
        """Return the simulated us of ``call`` by all groups: the longest of those in the orbit."""
        own = [call._replace(members=group) for group in self._groups]
        times = self._whole.time_groups([*own, *self._company])
        return max(times[number] for number in self._counted)

    def time_all(
        self, program: Program, calls: Sequence[Call], *, root: int = 0, threads: int = 1
    ) -> list[float]:
        """Return the simulated time in us of each of ``calls``, infinite for what is refused."""
        return Executor.time_all(self, program, calls, root=root)


class GroupPlanExecutor(PlanSimExecutor):
    """Times the plan of MSCCL++ that a program becomes as all groups of a kind run it at once.

    The defaults to beat run as NCCL's do.
    """

    def __init__(
        self,
        topology: Topology,
        groups: Groups,
        orbit: Sequence[int],
        company: Sequence[GroupCall] = (),
        launch: str = "mpi",
    ) -> None:
        """Prepare as `GroupExecutor` does.

        Raises:
            InputError: MSCCL++ runs no plan of the orbit's groups.
        """
        if ranks_per_node(topology, groups[orbit[0]]) is None:
            raise InputError(
                f"ranks {', '.join(map(str, groups[orbit[0]][:8]))}: MSCCL++ needs as many of a "
                "group on each host, numbered host by host; leave its kind out"
            )
        super().__init__(keep_gpus(topology, groups[orbit[0]]), launch=launch)
        self._defaults: GroupExecutor = GroupExecutor(topology, groups, orbit, company, launch)

    @property
    def planned_topology(self) -> Topology | None:
        """The part's share of the links."""
        return self._defaults.planned_topology

    @property
    def label(self) -> str:
        """That it simulates MSCCL++, on what, and how many groups call at once."""
        return f"{super().label}, {self._defaults.at_once}"

    @property
    def concurrent(self) -> int:
        """As of `GroupExecutor`."""
        return self._defaults.concurrent

    def _run_us(self, plan: ExecutionPlan, call: GroupCall) -> float:
        return self._defaults.slowest_us(call._replace(plan=plan))


def share(part: Topology, hops: Sequence[set[Hop]]) -> Topology | None:
    """Return a group's part with each link's rate over the number of groups that use it.

    None where it shares nothing. Links are used by the routes between a group's members.
    """
    users = Counter((hop.src, hop.dst) for used in hops for hop in used)
    links = tuple(
        msgspec.structs.replace(link, bandwidth=link.bandwidth / count)
        for link in part.links
        for count in [max(1, *(users[way] for way in link.directions()))]
    )
    if links == part.links:
        return None
    return msgspec.structs.replace(part, links=links)
