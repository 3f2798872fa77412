"""Policies: gains of actions on trained calls, kept in a JSON file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from tuccl.errors import InputError
from tuccl.files import decode_reason, printable_path, read_bounded, write_file
from tuccl.tuning.rl.action import Action
from tuccl.tuning.rl.bandit import Belief, distance
from tuccl.tuning.rl.state import State
from tuccl.tuning.searches.space import Point, Space

FORMAT = "tuccl-policy/2"
_MOST_BYTES = 64 << 20
_Gain = Annotated[float, msgspec.Meta(ge=-50, le=50)]
_Text = Annotated[str, msgspec.Meta(max_length=255)]


class TrainedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call that was trained on.

    Attributes:
        machine: Name of the topology.
        state: Of the call.
        gains: For each action of the collective log(default time / time) on the simulator, the
            default being the search's own; None where it cannot run.
    """

    machine: _Text
    state: State
    gains: tuple[_Gain | None, ...]


class TrainedCollective(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Actions of one collective, and their gains on each call."""

    collective: Annotated[str, msgspec.Meta(max_length=40)]
    actions: Annotated[tuple[Action, ...], msgspec.Meta(max_length=4096)]
    calls: Annotated[tuple[TrainedCall, ...], msgspec.Meta(max_length=4096)]

    def __post_init__(self) -> None:
        """Refuse gains that are not one for each action, and calls of another collective."""
        for i, call in enumerate(self.calls):
            if len(call.gains) != len(self.actions):
                raise ValueError(
                    f"calls[{i}].gains: {len(call.gains)} numbers, expected {len(self.actions)}"
                )
            if call.state.collective != self.collective:
                raise ValueError(f"calls[{i}].state.collective: expected {self.collective}")


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A trained policy.

    Attributes:
        trained_on: What it was trained with, in words.
        collectives: What was learned of each.
        of_nccl: Whether actions are NCCL's own configurations; if not, they are programs.
        format: Name and version of the format.
    """

    trained_on: _Text
    collectives: tuple[TrainedCollective, ...]
    of_nccl: bool = False
    format: Literal["tuccl-policy/2"] = "tuccl-policy/2"

    @property
    def machines(self) -> tuple[str, ...]:
        """Return the names of the machines it was trained on, each once."""
        names = (call.machine for each in self.collectives for call in each.calls)
        return tuple(dict.fromkeys(names))

    def trained(self, collective: str) -> TrainedCollective | None:
        """Return what was learned of ``collective``, None where nothing was."""
        return next((each for each in self.collectives if each.collective == collective), None)

    def belief(self, state: State) -> tuple[Belief, tuple[Action, ...]] | None:
        """Return the belief about ``state`` and the actions it is over; None: not trained."""
        trained = self.trained(state.collective)
        if trained is None or not trained.calls or not trained.actions:
            return None
        distances = [distance(state, call.state) for call in trained.calls]
        return Belief(distances, [call.gains for call in trained.calls]), trained.actions

    def points(self, space: Space, state: State, count: int) -> list[Point]:
        """Return up to ``count`` legal points of ``space``, ranked; none where nothing is known."""
        known = self.belief(state)
        if known is None:
            return []
        belief, actions = known
        points: dict[Point, None] = {}
        while len(points) < count and (expectation := belief.next()) is not None:
            action = actions[expectation[0]]
            if action.method in space.methods:
                points[action.point(space)] = None
        return list(points)


def save_policy(policy: Policy, path: Path) -> None:
    """Write ``policy`` to ``path``, whole or not at all.

    Raises:
        InputError: the folder is not there or cannot be written.
    """
    write_file(path, msgspec.json.encode(policy) + b"\n")


def load_policy(path: Path) -> Policy:
    """Return the policy in the file ``path``.

    Raises:
        InputError: it cannot be read, or is no policy of this format.
    """
    data = read_bounded(path, _MOST_BYTES)
    try:
        return msgspec.json.decode(data, type=Policy)
    except (msgspec.DecodeError, ValueError) as error:
        raise InputError(
            f"{printable_path(path)}: {decode_reason(error, Policy)}; expected a policy of "
            f"format {FORMAT}, which `tuccl policy` writes"
        ) from None
