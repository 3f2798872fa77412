"""Bound a collective: the throughput and latency that no algorithm can beat on a machine."""

import tuccl

cluster = tuccl.profile("dgx-a100", nodes=2)
for name in ("allgather", "allreduce", "alltoall"):
    best = tuccl.bound(cluster, name)
    proved = "attainable" if best.certified else "a bound only"
    print(f"{name}: at most {best.algbw_gbs:.1f} GB/s ({proved})")
    print(f"  at least {best.latency_us:.2f} us, however small the call")
    print(f"  limited where {best.bottleneck}")
    print(f"  16 MiB take at least {best.time_us(16 << 20):.1f} us")

# A collective with a root other than rank 0; and switches that reduce and multicast (NVLS, SHARP).
broadcast = tuccl.Collective("broadcast", cluster.ranks, root=3)
print(f"broadcast from rank 3: {tuccl.bound(cluster, broadcast).algbw_gbs:.1f} GB/s")
over_switches = tuccl.bound(cluster, "allreduce", over="switches")
assert over_switches.algbw_gbs >= tuccl.bound(cluster, "allreduce").algbw_gbs
