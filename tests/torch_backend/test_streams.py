"""Streams of calls on GPUs, with a stand-in for those of torch.cuda."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import torch

from tuccl.torch.calls import CollectiveCall
from tuccl.torch.gpus import GpuCollectives, GpuWork


class Streams:
    """A device's streams: ``log`` holds what each did, in order."""

    def __init__(self) -> None:
        self.log: list[tuple[object, ...]] = []
        self.made = 0
        self.present = Stream(self)


class Stream:
    def __init__(self, streams: Streams) -> None:
        self.streams, self.cuda_stream, self.device = streams, streams.made, torch.device("cpu")
        streams.made += 1

    def wait_stream(self, other: Stream) -> None:
        self.streams.log.append((self.cuda_stream, "waits for", other.cuda_stream))

    def wait_event(self, event: int) -> None:
        self.streams.log.append((self.cuda_stream, "waits for event of", event))

    def record_event(self) -> int:
        return self.cuda_stream


class Communicator:
    """Runs calls of up to 100 elements."""

    def __init__(self, streams: Streams) -> None:
        self.streams = streams

    def run(self, call: CollectiveCall, stream: int) -> bool:
        if call.sample.numel() > 100:
            return False
        assert self.streams.present.cuda_stream == stream
        self.streams.log.append((stream, "runs"))
        return True


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    """Put the stand-in in the place of torch.cuda."""
    streams = Streams()

    @contextlib.contextmanager
    def stream(inner: Stream) -> Iterator[None]:
        before, streams.present = streams.present, inner
        yield
        streams.present = before

    def record_stream(tensor: torch.Tensor, stream: Stream) -> None:
        streams.log.append(("memory until", stream.cuda_stream))

    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *device: streams.present)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: Stream(streams))
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.Tensor, "record_stream", record_stream)
    return streams


def start(gpus: GpuCollectives, count: int) -> GpuWork | None:
    tensor = torch.ones(count)
    return gpus.start(CollectiveCall("allreduce", tensor, [tensor], [tensor]))


def test_calls_overlap_with_what_the_caller_does_next(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = GpuCollectives(None, 0, 2, [])
    monkeypatch.setattr(gpus, "_join", lambda: Communicator(streams))
    first, second = start(gpus, 10), start(gpus, 20)
    assert first is not None and second is not None
    memory = [("memory until", 1)] * 2
    assert streams.log == [(1, "waits for", 0), (1, "runs"), *memory] * 2
    streams.log.clear()
    first.wait()
    assert streams.log == [(0, "waits for event of", 1)]


def test_a_call_without_a_program_leaves_no_loose_end(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = GpuCollectives(None, 0, 2, [])
    monkeypatch.setattr(gpus, "_join", lambda: Communicator(streams))
    assert start(gpus, 200) is None
    assert streams.log == [(1, "waits for", 0), (0, "waits for", 1)]
