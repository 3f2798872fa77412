"""Steps over parameter servers: every rank works, and serves a share of the parts."""

from __future__ import annotations

import threading
import time
from typing import Any

import torch
import torch.distributed as dist

from tuccl.training.model import ELEMENT_BYTES, Model
from tuccl.training.plan import BucketPlan
from tuccl.training.ranks.turns import SeparateSteps, layer_spans
from tuccl.training.timeline import Span

__all__ = ["ServerSteps"]


class ServerSteps(SeparateSteps):
    """Parts are pushed to their server, which adds them up and answers with the sum.

    Servers are colocated: part p is served by rank p modulo the ranks. Messages are Gloo's.
    """

    def __init__(self, model: Model, plan: BucketPlan, group: Any, rank: int, ranks: int) -> None:  # noqa: ANN401
        """Prepare the parts, and the places of what others push."""
        self._model, self._plan, self._group, self._rank = model, plan, group, rank
        self.buffers = [torch.zeros(bucket.nbytes // ELEMENT_BYTES) for bucket in plan.buckets]
        self._server = [part % ranks for part in range(len(plan.buckets))]
        self._others = [other for other in range(ranks) if other != rank]
        self._pulled = [torch.zeros_like(buffer) for buffer in self.buffers]
        self._pushed = {
            part: [torch.zeros_like(self.buffers[part]) for _ in self._others]
            for part, server in enumerate(self._server)
            if server == rank
        }
        self._graded = [threading.Event() for _ in plan.buckets]
        self._error: BaseException | None = None

    def spans(self) -> list[Span]:
        """Return the timers; messages go both ways at once, and are left out."""
        return layer_spans(self._model)

    def step(self, number: int) -> None:
        """Push each part when it is ready, and wait until all sums are here."""
        model, begin = self._model, time.perf_counter()

        def sleep_until(us: float) -> None:
            if (left := begin + us / 1e6 - time.perf_counter()) > 0:
                time.sleep(left)

        for event in self._graded:
            event.clear()
        pulls = {
            part: dist.irecv(self._pulled[part], server, self._group, tag=2 * part + 1)
            for part, server in enumerate(self._server)
            if server != self._rank
        }
        serving = threading.Thread(target=self._serve, daemon=True)
        serving.start()
        pushes = []
        for part, bucket in enumerate(self._plan.buckets):
            sleep_until(model.ready_us[bucket.first])
            self._graded[part].set()
            if part in pulls:
                server = self._server[part]
                pushes.append(dist.isend(self.buffers[part], server, self._group, tag=2 * part))
        sleep_until(model.forward_us + model.backward_us)
        for work in (*pushes, *pulls.values()):
            work.wait()
        serving.join()
        if self._error is not None:
            raise self._error
        for part in pulls:
            self.buffers[part].copy_(self._pulled[part])
        time.sleep(model.update_us / 1e6)

    def _serve(self) -> None:
        """Add up what is pushed, part by part, and answer."""
        try:
            arrivals = {
                part: [
                    dist.irecv(place, other, self._group, tag=2 * part)
                    for other, place in zip(self._others, places, strict=True)
                ]
                for part, places in self._pushed.items()
            }
            answers = []
            for part, works in arrivals.items():
                for work in works:
                    work.wait()
                self._graded[part].wait()
                for place in self._pushed[part]:
                    self.buffers[part] += place
                answers += [
                    dist.isend(self.buffers[part], other, self._group, tag=2 * part + 1)
                    for other in self._others
                ]
            for answer in answers:
                answer.wait()
        except BaseException as error:  # noqa: BLE001 - raised again by the step
            self._error = error
