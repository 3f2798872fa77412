"""Prints the share of an emulated link's rate that TCP gets, at several rates, in Mb/s.

    sudo .venv/bin/python benchmarks/emulated_rates.py

Compared with the nominal rate. Frames of 9000 bytes leave 99.3 % of it to payload; what is
missing beyond that is this machine's processors, so run it on an idle one.
"""

from __future__ import annotations

from peers.tcp_flows import link_rates
from report import publish

from tuccl.cli.output import columns
from tuccl.emulation import Emulation, set_rate
from tuccl.topology import join, load_profile

RATES_MBPS = (100, 200, 500, 1000, 2000, 4000)


def main() -> None:
    """Print a row a rate."""
    rows = []
    with Emulation(join(load_profile("ndv2"), 2)) as emulation:
        for rate in RATES_MBPS:
            for link in emulation.queues():
                set_rate(*link, rate * 1e6, emulation.id)
            got = link_rates(emulation, nbytes=rate * 125_000)[0].mbps  # a second of it
            bucket = max(queue.burst for queue in emulation.queues().values())
            rows.append([rate, got, f"{got / rate:.1%}", bucket])
    print(columns(["Mb/s", "received", "part", "bucket"], rows))


if __name__ == "__main__":
    publish(main, "Measured, on network namespaces")
