"""Named stages in a loader: the table a worker records into, and samples named for the timing lines."""

from collections.abc import Iterator, Sequence
from time import perf_counter_ns
from typing import Any

from headrace.model import STAGE_TABLE_WORDS, EventKind, StageTable, sample, watches_samples
from headrace.signals.recording import Lane, open_lane

from ..memory import Board, Head


def worker_table(words: memoryview, worker: int) -> StageTable:
    """A worker's own stage table, on the board; it is written while the loader records."""
    at = Board.stages_at(worker)
    own, switch = words[at : at + STAGE_TABLE_WORDS], words[Head.RECORD : Head.RECORD + 1]
    lane = open_lane(role="worker")
    return StageTable(own, switch=switch) if lane is None else _RecordedStages(lane, own, switch)


class _RecordedStages(StageTable):
    """A table whose stages are events of a recording, too."""

    is_recorded = True

    def __init__(self, lane: Lane, words: memoryview, switch: memoryview) -> None:
        super().__init__(words, switch=switch)
        self._lane = lane

    def add(self, name: str, elapsed_ns: int, own_ns: int, nbytes: int) -> None:
        super().add(name, elapsed_ns, own_ns, nbytes)
        kind = EventKind.DECODE if name.endswith(" decode") else EventKind.STAGE  # our codecs name theirs so
        self._lane.write(kind, perf_counter_ns() - elapsed_ns, elapsed_ns, nbytes, self._lane.name(name))


def named_samples(dataset: Any) -> Any:
    """The data set, with its samples named where their timing lines are printed; otherwise the data set itself."""
    if not watches_samples() or isinstance(dataset, _NamedSamples):
        return dataset
    return _NamedBatches(dataset) if getattr(dataset, "__getitems__", None) else _NamedSamples(dataset)


def named_steps(steps: Iterator[Any]) -> Iterator[Any]:
    """The same for the iterator of an iterable data set."""
    return _NamedSteps(steps) if watches_samples() else steps


class _NamedSamples:
    """Stands in for a data set, to say which sample is in hand."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_dataset"], name)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: Any) -> Any:
        with sample(index):
            return self._dataset[index]

    def __iter__(self) -> Iterator[Any]:
        return _NamedSteps(iter(self._dataset))


class _NamedBatches(_NamedSamples):
    def __getitems__(self, indices: Sequence[Any]) -> Any:
        with sample(f"{indices[0]} to {indices[-1]}" if indices else "none"):
            return self._dataset.__getitems__(indices)


class _NamedSteps:
    """Stands in for an iterator, and goes on after an exception if that does: no generator could."""

    def __init__(self, steps: Iterator[Any]) -> None:
        self._steps, self._number = steps, -1

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._number += 1
        with sample(self._number):
            return next(self._steps)
