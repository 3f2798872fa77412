"""A stand-in for MSCCL++'s executor_test.py: its arguments and its lines; plans run on this CPU."""

from __future__ import annotations

from pathlib import Path

_SCRIPT = """
import argparse, json, os, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("-path", "--execution_plan_path", type=str, required=True)
parser.add_argument("--size", type=str, required=True)
parser.add_argument("--in_place", action="store_true")
parser.add_argument("--dtype", type=str, default="float16")
parser.add_argument("--packet_type", type=str, default="LL16")
parser.add_argument("--n_iters", type=int, default=10)
parser.add_argument("--n_graph_iters", type=int, default=10)
args = parser.parse_args()
fault = {fault!r}
ranks = int(os.environ["OMPI_COMM_WORLD_SIZE"])
text = open(args.execution_plan_path).read()
plan = json.loads(text)
size = int(args.size)
with open({seen!r}, "a") as seen:
    seen.write(json.dumps({{"argv": sys.argv[1:], "protocol": plan["protocol"]}}) + "\\n")
assert plan["inplace"] == args.in_place and len(plan["gpus"]) == ranks
if fault == "hang":
    time.sleep(600)
if fault == "crash" or (fault == "packets crash" and plan["protocol"] == "LL"):
    print("RuntimeError: an illegal memory access was encountered", file=sys.stderr)
    sys.exit(1)
from tuccl.mscclpp import ExecutionPlan
wrong = ExecutionPlan.parse(text).run(size, calls=3).wrong
if wrong or fault == "wrong":
    print("verifier.cu:85: test_data_all_reduce: Assertion `x` failed.", file=sys.stderr)
    sys.exit(1)
result = size // ranks if plan["collective"] == "reducescatter" else size
for rank in range(ranks - (fault == "ranks")):
    us = 4.0 + rank + size / (2e4 if plan["protocol"] == "LL" else 1e5)
    if fault == "nan":
        us = float("nan")
    shown = result // 2 if fault == "size" else result
    print(f"Rank: {{rank}} Execution time: {{us}} us, data size: {{shown}} bytes "
          f"data type: {{args.dtype}} bandwidth: {{result / us / 1e3:.2f}} GB/s, "
          f"packet type: PacketType.{{args.packet_type}}")
"""


def make_executor_test(folder: Path, fault: str = "") -> tuple[Path, Path]:
    """Return the source tree with the script, and the file in which it notes its calls."""
    script = folder / "mscclpp" / "python" / "test" / "executor_test.py"
    script.parent.mkdir(parents=True)
    seen = folder / "seen.jsonl"
    script.write_text(_SCRIPT.format(fault=fault, seen=str(seen)))
    return folder / "mscclpp", seen
