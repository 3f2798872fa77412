"""Read a machine: from the file that NCCL dumps of a host, or from a known profile."""

from pathlib import Path

import tuccl

# NCCL_TOPO_DUMP_FILE=topo.xml makes any NCCL job write such a file. This one lists bare PCI GPUs:
# the profile adds the NVLinks and rates that it lacks, and marks them as assumed.
dump = Path(__file__).parent / "machines" / "ndv2-topo.xml"
cluster = tuccl.read_topology(dump, nodes=2, profile="ndv2")
assumed = sum(link.assumed for link in cluster.links)
print(f"{cluster.ranks} GPUs on {len(cluster.hosts)} hosts, {assumed} links assumed")

# A machine whose layout is known needs no file.
known = tuccl.profile("ndv2", nodes=2)
print(f"{known.name}: {known.ranks} GPUs on {len(known.hosts)} hosts")
assert known.ranks == cluster.ranks == 16
