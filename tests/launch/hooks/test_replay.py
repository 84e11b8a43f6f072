"""The replay inside a process: what it keeps, what it refuses, and that a refusal leaves everything real."""

from typing import Any

import pytest
import torch

from headrace.launch.hooks import replay as replaying
from headrace.launch.hooks.replay import _NOTHING, Replay, batches_ahead


class Passes:
    """What a loader's iterator is to a replay: something that can be asked, and holds notes."""

    _tasks_outstanding = 6


class Loop:
    """A training loop: asks, trains, asks again."""

    def __init__(self, replay: Replay, monkeypatch: pytest.MonkeyPatch) -> None:
        self.replay, self.iterator, self.worked = replay, Passes(), 0
        self.written: list[tuple[int, ...]] = []
        self.named: list[str] = []
        monkeypatch.setattr(replaying.step, "num_worked", lambda: self.worked)
        monkeypatch.setattr(replaying.tape, "write", lambda *event: self.written.append(event))
        monkeypatch.setattr(replaying.tape, "name", self._name)

    def _name(self, text: str) -> int:
        self.named.append(text)
        return len(self.named)

    def step(self, batch: Any) -> Any:
        """Make a step on what the loader gives, or on what is given instead."""
        given = self.replay.ask(self.iterator)
        if given is _NOTHING:
            given = batch
            self.replay.came(self.iterator, batch)
        self.worked += 1
        return given


def test_steps_on_kept_batches_and_then_the_loaders_own(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(Replay(16), monkeypatch)
    given = [loop.step(torch.tensor([number])) for number in range(60)]
    values = [int(one[0]) for one in given]
    assert values[:16] == list(range(16))
    assert values[16:32] == [8, 9, 10, 11, 12, 13, 14, 15] * 2
    assert values[32:] == list(range(32, 60))  # this loop counts by itself; a loader would go on with 16
    (ended,) = [event for event in loop.written if event[0] == 30 and event[3] >= 0]
    assert ended[3] == 6  # batches that the loader had ahead


def test_a_batch_that_is_too_large_means_no_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(Replay(16, room_bytes={"cpu": 100}), monkeypatch)
    batches = [torch.zeros(200) for _ in range(40)]
    assert all(loop.step(batch) is batch for batch in batches)
    assert [event[3] for event in loop.written] == [-2]
    assert "a tenth of what is free" in loop.named[0]


def test_room_for_some_batches_is_used_up_and_the_steps_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(Replay(16, room_bytes={"cpu": 3 * 8}), monkeypatch)
    values = [int(loop.step(torch.tensor([number]))[0]) for number in range(40)]
    assert set(values[16:32]) == {8, 9, 10}


def test_what_cannot_be_copied_means_no_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(Replay(16), monkeypatch)
    batches = [(number for number in range(2)) for _ in range(40)]  # a generator
    assert all(loop.step(batch) is batch for batch in batches)
    assert "could not be copied: TypeError" in loop.named[0]


def test_ranks_on_other_machines_mean_no_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "_num_ranks", lambda: 4)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    loop = Loop(Replay(16), monkeypatch)
    batches = [torch.zeros(1) for _ in range(40)]
    assert all(loop.step(batch) is batch for batch in batches)
    assert "the others might not replay" in loop.named[0]


def test_a_training_that_writes_into_its_batches_gets_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(Replay(32), monkeypatch)
    for number in range(48):
        batch = loop.step(torch.tensor([float(number % 16)]))
        assert float(batch[0]) == (number % 16 if number < 16 else 8 + number % 8)
        batch.mul_(100)


def test_a_pass_without_workers_has_nothing_ahead() -> None:
    assert batches_ahead(object()) == 0
