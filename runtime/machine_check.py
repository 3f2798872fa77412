"""Whether the machine is still the one that a table was tuned for."""

from __future__ import annotations

from collections import Counter

from tuccl.errors import TucclError
from tuccl.topology import Topology, check, probe_local, signature

__all__ = ["changed_machine"]


def changed_machine(tuned: Topology, now: Topology | None = None) -> tuple[str, ...]:
    """Return why ``tuned`` does not describe this machine any more, a line each; none if it does.

    ``now`` is a description of the machine as it is: then signatures are compared. Without one
    the GPUs of this host are counted, where there are any: /sys tells neither NVLink nor the
    other hosts.

    >>> from tuccl.topology import join, load_profile
    >>> dgx = load_profile("dgx-1v")
    >>> changed_machine(dgx, dgx), changed_machine(dgx, join(dgx, 2))[0]
    ((), '8 GPUs before, 16 now')
    """
    if now is not None:
        if signature(now) == signature(tuned):
            return ()
        lines = check(tuned, now)
        return lines or (f"signature {signature(tuned)} before, {signature(now)} now",)
    try:
        here, _ = probe_local()
    except TucclError:  # no GPU here: the host that launches need not have one
        return ()
    hosts = Counter(gpu.host for gpu in tuned.gpus)
    if here.ranks in hosts.values():
        return ()
    known = ", ".join(str(count) for count in sorted(set(hosts.values())))
    return (f"{known} GPUs on a host before, {here.ranks} on this one now",)
