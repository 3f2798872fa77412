#!/bin/sh
# The main job, start to end: a machine file as Azure publishes it for NDv2, two such hosts,
# to a tuned table and a comparison with the defaults. Simulated; run again, it resumes.
set -eu
out=${1:?usage: demo.sh FOLDER}
here=$(dirname "$0")
tuccl=${TUCCL:-.venv/bin/tuccl}
mkdir -p "$out"

echo "1/3 probe: the published file lists bare PCI GPUs; the profile adds NVLink, marked assumed"
"$tuccl" probe --from "$here/machines/ndv2-topo.xml" --profile ndv2 --nodes 2 -o "$out/topology.json"

echo "2/3 tune on the simulator: sketch, method and knobs together, 1 KB to 1 GB"
"$tuccl" tune "$out/topology.json" -c allgather,allreduce -s 1K:1G:x4 --on sim --resume -o "$out/table"

echo "3/3 compare with the defaults, size by size"
"$tuccl" compare "$out/table" --on sim --baseline both --report "$out/report.html"
