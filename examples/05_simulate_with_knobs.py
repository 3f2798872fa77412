"""Simulate a program at several sizes and by several knobs; nothing is run."""

import tuccl

host = tuccl.profile("dgx-a100")
protocols = {
    name: tuccl.synthesize(host, "allreduce", "1M", method="ring", protocol=name, channels=4).best
    for name in ("Simple", "LL", "LL128")
}

print("bytes       " + "".join(f"{name:>10}" for name in protocols))
for size in ("4K", "256K", "16M"):
    times_us = [tuccl.simulate(p.program, host, size, p.knobs).us for p in protocols.values()]
    print(f"{size:<12}" + "".join(f"{us:>10.1f}" for us in times_us) + "   us, simulated")

# Knobs of a call are the threads of a thread block and the bytes of a connection's buffer, too.
ring = protocols["Simple"].program
for threads in (128, 512):
    knobs = tuccl.Knobs("Simple", channels=4, threads=threads, buffer_bytes=1 << 20)
    print(f"{threads} threads: {tuccl.simulate(ring, host, '16M', knobs).us:.1f} us, simulated")
