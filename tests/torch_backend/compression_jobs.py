"""What the processes of a test train with sparse gradients: each function is a job (ranks.py)."""

import os
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.torch_backend.ranks import begin, job
from tuccl.errors import InputError
from tuccl.training.compression.controller import RatioController
from tuccl.training.compression.exchanges import Link
from tuccl.training.compression.hooks import ar_topk_hook, lw_topk_hook, ms_topk_hook
from tuccl.training.compression.measuring import exchange_probe, measured_costs
from tuccl.training.compression.monitors import CallMonitor, ProbingMonitor, ScheduledMonitor
from tuccl.training.compression.state import ARTopkState

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SIZES = (37, 300, 5, 120)


class Given(torch.nn.Module):  # type: ignore[misc]
    """Parameters whose gradients are what is given."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = torch.nn.ParameterList(torch.zeros(size) for size in SIZES)

    def forward(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        return sum((p * g).sum() for p, g in zip(self.parts, gradients, strict=True))


def hooked(model: torch.nn.Module, state: ARTopkState, hook: Callable[..., Any]) -> DDP:
    parallel = DDP(model, bucket_cap_mb=0.0005)
    parallel.register_comm_hook(state, hook)
    return parallel


def whole_numbers(step: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * step + RANK)
    return [torch.randint(-50, 50, (size,), generator=generator).float() for size in SIZES]


def cases() -> Iterator[tuple[Callable[..., Any], dict[str, Any]]]:
    for selection in ("star", "var"):
        for collective in ("allreduce", "allgather", "auto"):
            yield ar_topk_hook, {"selection": selection, "collective": collective}
    yield ar_topk_hook, {"collective": "tree-allreduce", "tree_group": dist.new_group()}
    yield from ((lw_topk_hook, {}), (ms_topk_hook, {}))


def flat(state: ARTopkState, model: torch.nn.Module) -> torch.Tensor:
    """Return the residual in the order of the model's parameters."""
    order = state.order_of(list(model.parameters()))
    return torch.cat([state.error_dict[place] for place in order])


@job
def nothing_is_lost() -> None:
    """All ranks' residuals and N times the mean are all ranks' gradients and old residuals."""
    begin()
    for hook, options in cases():
        state = ARTopkState(compression_ratio=0.1, start_ARTopk_iter=0, **options)
        model = hooked(Given(), state, hook)
        before = torch.zeros(sum(SIZES))
        for step in range(5):
            model.zero_grad()
            given = whole_numbers(step)
            model(given).backward()
            mean = [p.grad.clone() for p in model.parameters()]
            should = torch.cat(given) + before
            dist.all_reduce(should)
            left = flat(state, model)
            before = left.clone()
            dist.all_reduce(left)
            assert torch.equal(left + SIZE * torch.cat(mean), should), (options, step)
            assert 0 < state.gain <= 1 and state.iter == step + 1
        rate, _, sent = state.compression_stats()
        assert 5 < rate <= 11 and sent > 0
        if hook is ar_topk_hook and options["collective"].endswith("allreduce"):
            assert state.root is not None
            assert options.get("selection") == "var" or state.root == 4 % SIZE
    nothing = ARTopkState(compression_ratio=1.0, start_ARTopk_iter=0)
    model = hooked(Given(), nothing, ar_topk_hook)
    model(whole_numbers(0)).backward()
    dense = torch.cat(whole_numbers(0))
    dist.all_reduce(dense)
    assert torch.equal(torch.cat([p.grad for p in model.parameters()]) * SIZE, dense)
    assert not flat(nothing, model).any() and nothing.gain == 1


def network() -> torch.nn.Module:
    torch.manual_seed(3)
    layers = [torch.nn.Linear(20, 40), torch.nn.Tanh(), torch.nn.Linear(40, 20)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(20, 3))


def trained(model: DDP, optimizer: torch.optim.Optimizer, state: ARTopkState, to: int) -> None:
    """Train until step ``to``; the ratio and the exchange change on the way."""
    for step in range(state.iter, to):
        state.compression_ratio = (0.5, 0.05, 0.2)[step % 3]
        state.collective = ("allgather", "allreduce", "auto")[step // 2 % 3]
        torch.manual_seed(100 * step + RANK)
        optimizer.zero_grad()
        model(torch.randn(8, 20)).square().mean().backward()
        optimizer.step()


@job
def sparse_training() -> None:
    """Ranks keep the same weights through switches; a job that is resumed ends bitwise alike."""
    begin()
    for selection in ("star", "var"):
        weights = []
        for stops in ((9,), (4, 9)):
            file = Path(os.environ["LOGS"], f"{RANK}-{selection}.pt")
            file.unlink(missing_ok=True)
            for stop in stops:
                state = ARTopkState(start_ARTopk_iter=2, selection=selection)
                model = hooked(network(), state, ar_topk_hook)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
                if file.exists():
                    saved = torch.load(file, weights_only=True)
                    state.load_state_dict(saved["hook"])
                    model.load_state_dict(saved["model"])
                    optimizer.load_state_dict(saved["optimizer"])
                trained(model, optimizer, state, stop)
                parts = {"hook": state, "model": model, "optimizer": optimizer}
                torch.save({name: part.state_dict() for name, part in parts.items()}, file)
            weights.append(torch.cat([p.detach().view(-1) for p in model.parameters()]))
            weights.append(flat(state, model))
        assert torch.equal(weights[0], weights[2]) and torch.equal(weights[1], weights[3])
        copies = torch.empty(SIZE * weights[0].numel())
        dist.all_gather_single(copies, weights[0])
        assert all(torch.equal(copy, weights[0]) for copy in copies.split(weights[0].numel()))
        again = pickle.loads(pickle.dumps(state))
        assert again.process_group is None and again.iter == state.iter
        assert all(torch.equal(part, again.error_dict[p]) for p, part in state.error_dict.items())


@job
def wrong_ratio() -> None:
    begin()
    state = ARTopkState(start_ARTopk_iter=0)
    model = hooked(network(), state, ar_topk_hook)
    try:
        if RANK == 1:
            state.compression_ratio = 7.0
        model(torch.randn(8, 20)).square().mean().backward()
        raise AssertionError("went on")
    except (RuntimeError, InputError) as error:
        print("TOLD", str(error).splitlines()[0])
        sys.stdout.flush()
    os._exit(0)


@job
def controlled_training() -> None:
    """Trying ratios changes nothing but the ratio; the network's change is followed."""
    begin()
    fast, slow = Link(1.0, 10.0), Link(1e5, 1e-4)
    state = ARTopkState(start_ARTopk_iter=2)
    model = hooked(network(), state, ar_topk_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    # Other ranks believe something else: rank 0 decides.
    monitor = ScheduledMonitor([(0, fast), (6, slow)] if RANK == 0 else [(0, slow)])
    controller = RatioController(
        state, model, optimizer, monitor, candidates=(0.5, 0.1, 0.02), iterations=3, every=3
    )
    found: list[list[torch.Tensor]] = []  # by every step before it changes anything

    def train() -> None:
        found.append([torch.get_rng_state(), *(p.detach().clone() for p in model.parameters())])
        optimizer.zero_grad()
        model(torch.randn(8, 20)).square().mean().backward()
        optimizer.step()

    torch.manual_seed(RANK)
    for _ in range(9):
        controller.step(train)
    # Two dense steps, three of each candidate, then the step itself: from the same snapshot.
    assert len(found) == 9 + 3 * 3
    for start in (5, 8, 11):
        assert all(torch.equal(a, b) for a, b in zip(found[2], found[start], strict=True))
    assert state.iter == 9
    first, second = controller.decisions
    assert (first.reason, first.step, first.link) == ("start", 2, fast)
    assert (second.reason, second.step, second.link) == ("network", 6, slow)
    assert second.us > first.us and first.regret is None
    choices = torch.tensor([d.ratio for d in controller.decisions])
    dist.broadcast(choices, 0)
    assert choices.tolist() == [float(torch.tensor(d.ratio)) for d in controller.decisions]

    costs = measured_costs(sizes=(1024, 65536), repeats=2)
    assert all(costs.of(call)(4096) > 0 for call in ("allreduce", "broadcast", "allgather"))
    same = torch.tensor([costs.of("allgather")(n) for n in (1, 3000, 1 << 20)])
    copies = torch.empty(SIZE * 3)
    dist.all_gather_single(copies, same)
    assert all(torch.equal(copy, same) for copy in copies.split(3))
    probed = ProbingMonitor(exchange_probe(repeats=1), SIZE, values=(10, 1000)).link(0)
    assert probed.gbs > 0
    calls = CallMonitor(SIZE, Link(0.0, 123.0))
    chosen = RatioController(
        state, model, optimizer, calls, candidates=(0.5, 0.1), iterations=1, costs=costs
    )
    chosen.step(train)
    assert calls.link(0) != Link(0.0, 123.0)
    regret = chosen.decisions[0].regret
    assert regret is not None and regret >= 0
