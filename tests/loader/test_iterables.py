"""Iterable data sets with samples that fail: what comes, what is left out, and that nothing is lost in silence."""

from __future__ import annotations

import csv
import io
import itertools
import operator
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.utils.data as torch_data
from torch.utils.data import IterableDataset

import headrace
from headrace import DataLoader
from headrace.errors import NotSupported, TooManyBad

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
WAYS = [
    pytest.param({"num_workers": 0}, id="in-process"),
    pytest.param({"num_workers": 1, "backend": "process"}, id="process"),
    pytest.param({"num_workers": 2, "backend": "thread"}, id="thread"),
]
COLLATIONS = [pytest.param(None, id="slots"), pytest.param(list, id="general")]


def share(numbers: range) -> range:
    """The part of a worker's own."""
    info = torch_data.get_worker_info()
    return numbers if info is None else numbers[info.id :: info.num_workers]


def read(number: int, bad: set[int]) -> int:
    if number in bad:
        raise ValueError(f"row {number} is broken")
    return number


def generated(numbers: range, bad: set[int]) -> Iterator[int]:
    for number in numbers:
        yield read(number, bad)


class Going:
    """An iterator that fails here and there and goes on."""

    def __init__(self, numbers: range, bad: set[int]) -> None:
        self.numbers, self.bad = iter(numbers), bad

    def __iter__(self) -> Going:
        return self

    def __next__(self) -> int:
        return read(next(self.numbers), self.bad)


class Around:
    """A class with `__next__` that has a generator inside."""

    def __init__(self, numbers: range, bad: set[int]) -> None:
        self.inner = generated(numbers, bad)

    def __iter__(self) -> Around:
        return self

    def __next__(self) -> int:
        return next(self.inner)


class Rows(IterableDataset[int]):
    def __init__(self, make: Callable[[range, set[int]], Any], bad: set[int], size: int = 40) -> None:
        self.make, self.bad, self.size = make, bad, size

    def __iter__(self) -> Any:
        return self.make(share(range(self.size)), self.bad)


def mapped(numbers: range, bad: set[int]) -> Iterator[int]:
    return map(read, numbers, itertools.repeat(bad))


def chained(numbers: range, bad: set[int]) -> Iterator[int]:
    return itertools.chain(generated(numbers, bad), [])


def mapped_generator(numbers: range, bad: set[int]) -> Iterator[int]:
    return map(int, generated(numbers, bad))


def shards(numbers: range, bad: set[int]) -> Iterator[range]:
    return (numbers[first : first + 5] for first in range(0, len(numbers), 5))


def chained_shards(numbers: range, bad: set[int]) -> Iterator[int]:
    """A generator for each shard: after one that has ended, the next one begins."""
    return itertools.chain.from_iterable(map(generated, [*shards(numbers, bad)], itertools.repeat(bad)))


def sliced(numbers: range, bad: set[int]) -> Iterator[int]:
    """An `islice` lets go of its iterator when that raises."""
    return itertools.islice(Going(numbers, bad), 40)


def chained_slices(numbers: range, bad: set[int]) -> Iterator[int]:
    return itertools.chain.from_iterable(sliced(shard, bad) for shard in [*shards(numbers, bad)])


class ShardByShard:
    """The same in a class, as readers of tar files or lines are written."""

    def __init__(self, numbers: range, bad: set[int]) -> None:
        self.shards, self.bad = shards(numbers, bad), bad
        self.rows: Iterator[int] = iter(())

    def __iter__(self) -> ShardByShard:
        return self

    def __next__(self) -> int:
        for row in self.rows:
            return row
        self.rows = generated(next(self.shards), self.bad)
        return next(self)


class Summing(Going):
    """Has a generator inside of each sample, which ends with it."""

    def __next__(self) -> int:
        number = next(self.numbers)
        return sum(read(n, self.bad) for n in [number])


def values(loader: Any) -> list[int]:
    return [int(value) for batch in loader for value in (batch if loader.batch_size else [batch])]


def take(iterator: Iterator[Any], got: list[int]) -> None:
    for batch in iterator:
        got += map(int, batch)


def check_account(loader: Any, *, delivered: int, quarantined: int) -> None:
    account = loader.stats().account
    assert (account.given_out, account.delivered, account.quarantined, account.filled) == (
        delivered + quarantined,
        delivered,
        quarantined,
        0,
    )
    assert len(loader.quarantine) == quarantined


# ------------------------------------------------------------------------------------------- iterators that go on


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("collate", COLLATIONS)
@pytest.mark.parametrize("make", [Going, Summing, mapped])
def test_what_fails_is_left_out_and_accounted_for(way: dict[str, Any], collate: Any, make: Any) -> None:
    bad = {0, 3, 4, 11, 12, 29}
    loader = DataLoader(Rows(make, bad), 4, collate_fn=collate, on_error="quarantine", **way)
    assert sorted(values(loader)) == [number for number in range(40) if number not in bad]
    check_account(loader, delivered=34, quarantined=6)
    assert sorted(failure.message for failure in loader.quarantine) == sorted(f"row {n} is broken" for n in bad)
    assert {failure.exception for failure in loader.quarantine} == {"ValueError"}
    assert "in read" in loader.quarantine[0].traceback


@pytest.mark.parametrize("way", WAYS)
def test_the_last_sample_may_fail(way: dict[str, Any]) -> None:
    loader = DataLoader(Rows(Going, {38, 39}), 4, on_error="quarantine", **way)
    assert sorted(values(loader)) == list(range(38))
    check_account(loader, delivered=38, quarantined=2)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_end_right_after_a_failure_is_said(num_workers: int, caplog: pytest.LogCaptureFixture) -> None:
    loader = DataLoader(Rows(Going, {39}), 4, num_workers=num_workers, on_error="quarantine")
    assert values(loader) == list(range(39))
    assert (
        caplog.text.count("ended right after a sample that failed: if that was not its last one, the rest is lost") == 1
    )


@pytest.mark.parametrize("way", WAYS)
def test_without_batches(way: dict[str, Any]) -> None:
    loader = DataLoader(Rows(Going, {5}), None, on_error="quarantine", **way)
    assert sorted(values(loader)) == [number for number in range(40) if number != 5]
    check_account(loader, delivered=39, quarantined=1)


@pytest.mark.parametrize("way", WAYS)
def test_what_drop_last_drops_is_not_given_out(way: dict[str, Any]) -> None:
    loader = DataLoader(Rows(Going, {5}, size=43), 4, drop_last=True, on_error="quarantine", **way)
    got = values(loader)
    check_account(loader, delivered=len(got), quarantined=1)
    assert len(got) % 4 == 0


@pytest.mark.parametrize("way", WAYS)
def test_a_source_that_always_fails_is_an_error(way: dict[str, Any]) -> None:
    class Broken(IterableDataset[int]):
        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            raise OSError("the mount is lost")

    with pytest.raises(TooManyBad):
        values(DataLoader(Broken(), 4, on_error="quarantine", **way))


@pytest.mark.parametrize("way", WAYS)
def test_a_function_decides(way: dict[str, Any]) -> None:
    loader = DataLoader(Rows(Going, {5, 7}), 4, on_error=lambda failure: headrace.SKIP, **way)
    assert len(values(loader)) == 38
    with pytest.raises(ValueError, match=r"row [57] is broken"):
        values(DataLoader(Rows(Going, {5, 7}), 4, on_error=lambda failure: headrace.RAISE, **way))
    with pytest.raises(NotSupported, match="cannot be tried again or replaced"):
        values(DataLoader(Rows(Going, {5, 7}), 4, on_error=lambda failure: 5, **way))


def test_epochs_are_accounted_for_one_by_one() -> None:
    loader = DataLoader(Rows(Going, {5}), 4, num_workers=2, persistent_workers=True, on_error="quarantine", max_bad=9)
    for epoch in range(3):
        if epoch == 1:  # one that is given up in the middle says nothing of the next
            next(iter(loader))
            continue
        assert len(values(loader)) == 39
        account = loader.stats().account
        assert (account.given_out, account.delivered, account.quarantined) == (40, 39, 1)
    loader._iterator = None


_WITH_TIMING_LINES = """
from headrace import DataLoader
from tests.loader.test_iterables import Going, Rows, values

for num_workers in (0, 1):
    assert len(values(DataLoader(Rows(Going, {5}), 4, num_workers=num_workers, on_error="quarantine"))) == 39
"""


def test_timing_lines_do_not_end_an_iterator() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITH_TIMING_LINES],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "HEADRACE_TIMING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "TOTAL decode time" in done.stderr


# ------------------------------------------------------------------------------------------- iterators that cannot


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("collate", COLLATIONS)
@pytest.mark.parametrize(
    "make",
    [generated, Around, chained, mapped_generator, chained_shards, ShardByShard, sliced, chained_slices],
)
def test_a_generator_that_is_over_is_an_error(way: dict[str, Any], collate: Any, make: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    loader = DataLoader(Rows(make, {14}), 4, collate_fn=collate, on_error="quarantine", quarantine_file=path, **way)
    got: list[int] = []
    with pytest.raises(NotSupported, match="cannot go on after an exception") as caught:
        take(iter(loader), got)
    error = caught.value
    assert "ValueError: row 14 is broken" in str(error)
    before = 7 if way["num_workers"] == 2 else 14
    assert f"{before} samples" in str(error)
    assert ("worker 0" in error.what) == (way["num_workers"] > 0)
    assert "class with __next__" in error.next_step
    assert len(got) == len(set(got))
    assert loader.stats().account.delivered == len(got)
    assert [failure.message for failure in loader.quarantine] == ["row 14 is broken"]
    assert str(loader.quarantine[0]).startswith("a sample: ValueError: row 14")
    assert "row 14 is broken" in path.read_text()


def test_an_end_is_an_error_without_batches_too() -> None:
    for num_workers in (0, 1):
        with pytest.raises(NotSupported, match="cannot go on"):
            values(DataLoader(Rows(generated, {5}), None, num_workers=num_workers, on_error="quarantine"))


class UsedUp(ShardByShard):
    """Holds a chain that is used up while the next shard is opened."""

    def __next__(self) -> int:
        for row in self.rows:
            return row
        self.rows = itertools.chain([read(number, self.bad) for number in next(self.shards)])
        return next(self)


@pytest.mark.parametrize(
    ("make", "num_left"),
    [
        (lambda numbers, bad: map(max, itertools.pairwise(Going(numbers, bad))), None),
        (lambda numbers, bad: itertools.chain.from_iterable(map(open_list, shards(numbers, bad))), None),
        (lambda numbers, bad: map(abs, itertools.chain.from_iterable(map(open_list, shards(numbers, bad)))), None),
        (lambda numbers, bad: filter(lambda one: read(one, bad) >= 0, behind_a_chain(numbers)), 39),
        (lambda numbers, bad: map(sum, zip(mapped(numbers, bad), numbers, strict=False)), None),
        (lambda numbers, bad: map(sum, zip(Going(numbers, bad), iter(numbers), strict=False)), None),
        (lambda numbers, bad: map(sum, zip(numbers, mapped(numbers, bad), strict=False)), None),
        (lambda numbers, bad: map(partial(read_first, bad=bad), zip(numbers, numbers, strict=False)), 39),
        (lambda numbers, bad: map(sum, itertools.zip_longest(numbers, mapped(numbers, bad))), None),
        (lambda numbers, bad: map(sum, zip(map(int, texts(numbers, bad)), numbers, strict=False)), None),
        (lambda numbers, bad: map(sum, zip(numbers, map(int, texts(numbers, bad)), strict=False)), None),
        (lambda numbers, bad: Held(zip(mapped(numbers, bad), numbers, strict=False)), None),
        (lambda numbers, bad: Held(Held(zip(Going(numbers, bad), numbers, strict=False))), None),
        (lambda numbers, bad: Held(zip(map(int, texts(numbers, bad)), numbers, strict=False)), None),
        (lambda numbers, bad: Held(itertools.zip_longest(numbers, mapped(numbers, bad))), None),
        (lambda numbers, bad: Held(map(max, Going(numbers, bad), numbers)), None),
        (lambda numbers, bad: Held(zip(numbers, mapped(numbers, bad), strict=False)), None),
        (lambda numbers, bad: Held(zip(map(int, numbers), numbers, strict=False), bad), None),
        (lambda numbers, bad: Held(zip([*numbers], enumerate(numbers), strict=False), bad), 39),
        (lambda numbers, bad: Held(zip(np.arange(40), np.array(texts(numbers, set())), strict=True), bad), 39),
        (lambda numbers, bad: Held(itertools.zip_longest(numbers, numbers), bad), 39),
        (lambda numbers, bad: map(int, map(Path.__fspath__, map(Path, texts(numbers, bad)))), 39),
        (lambda numbers, bad: Held(zip(map(Path, texts(numbers, bad)), numbers, strict=False)), None),
        (lambda numbers, bad: Held(zip(map(cache(partial(read, bad=bad)), numbers), numbers, strict=False)), None),
        (lambda numbers, bad: itertools.chain(Going(numbers, bad)), 39),
        (lambda numbers, bad: UsedUp(numbers, bad), 35),
        (lambda numbers, bad: Backwards(numbers, bad), 39),
        (lambda numbers, bad: itertools.starmap(read, [(number, bad) for number in numbers]), 39),
        (lambda numbers, bad: itertools.accumulate(Going(numbers, bad)), 39),
        (lambda numbers, bad: map(abs, reversed(Looked(numbers, bad))), None),
        (lambda numbers, bad: map(partial(read, bad=bad), reversed(Looked(numbers, set()))), 39),
        (lambda numbers, bad: map(sum_group, itertools.groupby(Going(numbers, bad), by_seven)), None),
        (lambda numbers, bad: map(partial(sum_group, bad=bad), itertools.groupby(numbers, by_seven)), None),
        (lambda numbers, bad: map(partial(sum_group, bad=bad), itertools.groupby(numbers)), 39),
        (lambda numbers, bad: Held(zip(itertools.islice(numbers, 40), numbers, strict=True), bad), 39),
        (lambda numbers, bad: map(max, enumerate(Streamed(numbers, bad))), None),
    ],
    ids=[
        "pairwise",
        "chain of what fails",
        "in map",
        "behind a chain",
        "zip",
        "zip of a class",
        "zip, last",
        "around zip",
        "zip_longest",
        "zip, C raises",
        "zip, C raises, last",
        "zip in a class",
        "zip in two classes",
        "zip in a class, C raises",
        "zip_longest in a class",
        "map of two in a class",
        "zip in a class, last",
        "class around zip of what may fail",
        "class around zip",
        "class around zip of NumPy's arrays",
        "class around zip_longest",
        "maps",
        "class around zip, C raises",
        "zip in a class, cached",
        "chain",
        "used up",
        "used up backwards",
        "starmap",
        "accumulate",
        "reversed",
        "behind reversed",
        "groupby",
        "behind groupby with a function",
        "behind groupby",
        "around islice",
        "file of the user's own",
    ],
)
def test_what_itertools_lose_with_an_error_is_an_error(make: Any, num_left: int | None) -> None:
    loader = DataLoader(Rows(make, {14}), 4, on_error="quarantine", num_workers=0)
    if num_left is None:
        with pytest.raises(NotSupported, match="cannot go on after an exception"):
            values(loader)
    else:
        assert len(values(loader)) == num_left


def by_seven(number: int) -> int:
    return number // 7  # 14 is the first of its group, and is met as the group before it ends


def sum_group(group: tuple[int, Iterator[int]], bad: Collection[int] = ()) -> int:
    return sum([read(number, {*bad}) for number in group[1]])


class Backwards(Going):
    """Holds what it has used up before."""

    def __init__(self, numbers: range, bad: set[int]) -> None:
        super().__init__(numbers, bad)
        self.order = reversed(tuple(numbers))
        self.numbers = iter(sorted(self.order))


class Streamed(io.RawIOBase):
    """Lines that come over a connection, which fails now and then."""

    def __init__(self, numbers: range, bad: set[int]) -> None:
        super().__init__()
        self.numbers, self.bad = iter(numbers), bad

    def __next__(self) -> Any:
        return read(next(self.numbers), self.bad)


class Looked:
    """A sequence without an iterator of its own; some of its items cannot be had."""

    def __init__(self, numbers: range, bad: set[int]) -> None:
        self.numbers, self.bad = numbers, bad

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> int:
        return read(self.numbers[index], self.bad)


class Held:
    """Gives what an iterator in one of its attributes gives, the first of each row; some rows it cannot use."""

    def __init__(self, rows: Iterator[Any], bad: set[int] | None = None) -> None:
        self.rows, self.bad = rows, bad or set()

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        row = next(self.rows)
        number = row[0] if isinstance(row, tuple) else row
        if number in self.bad:
            raise ValueError(f"row {number} is broken")
        return int(str(number))


def texts(numbers: range, bad: set[int]) -> list[str]:
    return ["broken" if number in bad else str(number) for number in numbers]


def read_first(pair: tuple[int, int], bad: set[int]) -> int:
    return read(pair[0], bad)


def behind_a_chain(numbers: range) -> Iterator[int]:
    """A generator that goes on, and holds a chain that it has used up."""
    first = itertools.chain(numbers[:5])
    yield from first
    yield from numbers[5:]


def open_list(shard: range) -> list[int]:
    return [read(number, {14}) for number in shard]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_slice_of_what_does_not_raise_is_fine(num_workers: int) -> None:
    def make(numbers: range, bad: set[int]) -> Iterator[int]:
        return map(read, itertools.islice(numbers, 40), itertools.repeat(bad))

    loader = DataLoader(Rows(make, {5, 39}), 4, num_workers=num_workers, on_error="quarantine")
    assert len(values(loader)) == 38
    check_account(loader, delivered=38, quarantined=2)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_generator_that_catches_by_itself_is_fine(num_workers: int) -> None:
    def careful(numbers: range, bad: set[int]) -> Iterator[int]:
        for number in numbers:
            try:
                yield read(number, bad)
            except ValueError:
                continue

    loader = DataLoader(Rows(careful, {5}), 4, num_workers=num_workers, on_error="quarantine")
    assert len(values(loader)) == 39
    check_account(loader, delivered=39, quarantined=0)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_raise_is_as_in_torch(num_workers: int) -> None:
    for kind in (DataLoader, torch_data.DataLoader):
        got: list[int] = []
        iterator = iter(kind(Rows(generated, {9}), 4, num_workers=num_workers))
        with pytest.raises(ValueError, match="row 9 is broken"):
            take(iterator, got)
        assert got == list(range(8))
        with pytest.raises(StopIteration):
            next(iterator)


# ------------------------------------------------------------------------------------------- workers that die


class Dying(Going):
    """Ends its process once, right after the samples that fail before it."""

    def __init__(self, numbers: range, bad: set[int], mark: Path, dies_at: int) -> None:
        super().__init__(numbers, bad)
        self.mark, self.dies_at = mark, dies_at

    def __next__(self) -> int:
        number = next(self.numbers)
        if number == self.dies_at and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return read(number, self.bad)


@pytest.mark.parametrize("backend", ["process", "thread"])
@pytest.mark.parametrize("collate", COLLATIONS)
@pytest.mark.parametrize("dies_at", [0, 7, 15, 16, 39])
def test_a_death_neither_loses_nor_repeats(tmp_path: Path, backend: str, collate: Any, dies_at: int) -> None:
    bad = {3, 12, 14, 38}
    mark = tmp_path / "died"
    dataset = Rows(lambda numbers, bad: Dying(numbers, bad, mark, dies_at), bad)
    loader = DataLoader(dataset, 4, num_workers=1, backend=backend, collate_fn=collate, on_error="quarantine")
    assert values(loader) == [number for number in range(40) if number not in bad]
    assert mark.exists()
    assert [failure.message for failure in loader.quarantine] == [f"row {n} is broken" for n in sorted(bad)]
    check_account(loader, delivered=36, quarantined=4)


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_a_generator_that_fails_only_in_its_second_life_is_an_error(tmp_path: Path, backend: str) -> None:
    mark = tmp_path / "died"

    def dying(numbers: range, bad: set[int]) -> Iterator[int]:
        has_died = mark.exists()
        for number in numbers:
            if number == 30 and not has_died:
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield read(number, bad if has_died else set())

    for fails_at in (0, 27):
        mark.unlink(missing_ok=True)
        loader = DataLoader(Rows(dying, {fails_at}), 4, num_workers=1, backend=backend, on_error="quarantine")
        with pytest.raises(NotSupported, match="cannot go on"):
            values(loader)


def test_a_loop_that_goes_on_after_an_error_gets_nothing_twice(tmp_path: Path) -> None:
    mark = tmp_path / "died"
    dataset = Rows(lambda numbers, bad: Dying(numbers, set() if mark.exists() else bad, mark, 30), {9})
    iterator = iter(DataLoader(dataset, 4, num_workers=1))
    got: list[int] = []
    while True:
        try:
            got += next(iterator).tolist()
        except ValueError:
            continue
        except StopIteration:
            break
    assert mark.exists()
    assert got == [number for number in range(40) if number not in (8, 9)]  # 8 was in the batch that failed


class HeldUp(IterableDataset[int]):
    """Its second worker does not begin before a file is there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[int]:
        info = torch_data.get_worker_info()
        assert info is not None
        while info.id == 1 and not self.path.exists():
            time.sleep(0.01)
        yield from share(range(40))


def test_out_of_order_a_slow_worker_holds_up_no_other(tmp_path: Path) -> None:
    loader = DataLoader(HeldUp(tmp_path / "go on"), batch_size=None, num_workers=2, in_order=False, timeout=60)
    iterator = iter(loader)
    assert [next(iterator) for _ in range(20)] == list(range(0, 40, 2))
    (tmp_path / "go on").touch()
    assert list(iterator) == list(range(1, 40, 2))


def numbers_then_an_error() -> Iterator[int]:
    yield 0
    raise ValueError("bad line")


class LongestOf(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return itertools.zip_longest(numbers_then_an_error(), [])


def test_an_iterator_with_holes_inside_is_looked_at_without_harm() -> None:
    """`zip_longest` keeps a tuple with empty places, which ended the process when it was walked."""
    loader = headrace.DataLoader(LongestOf(), 2, num_workers=0, on_error="quarantine", max_bad=5)
    with pytest.raises(headrace.NotSupported):
        list(loader)


class Mapped(Iterator[Any]):
    def __init__(self, function: Callable[[Any], Any], source: Any) -> None:
        self.function, self.source = function, iter(source)

    def __next__(self) -> Any:
        return self.function(next(self.source))


class Helped(Mapped):
    def _row(self) -> Any:
        return next(self.source)

    def __next__(self) -> Any:
        return self._row()


def _lines(numbers: range, bad: set[int]) -> Iterator[int]:
    data = b"".join(b"\xff\n" if number in bad else b"%d\n" % number for number in numbers)
    return map(int, csv_column(io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")))


def _records(numbers: range, bad: set[int]) -> Iterator[int]:
    """A field that is too long has more lines, which look like records."""
    longest = csv.field_size_limit()
    texts = ['"' + "x" * longest + '\n77,x\nend"' if number in bad else "x" for number in numbers]
    lines = [f"{number},{text}\n" for number, text in zip(numbers, texts, strict=True)]
    return map(int, csv_column(io.StringIO("".join(lines))))


def csv_column(lines: Iterator[str]) -> Iterator[str]:
    return map(operator.itemgetter(0), csv.reader(lines))


def _read_each(numbers: range, bad: set[int]) -> Iterator[int]:
    def read_one(number: int) -> int:
        return int((b"\xff" if number in bad else b"%d" % number).decode())

    return map(read_one, numbers)


class Listed(Iterator[int]):
    """Samples with a text each, by a list in an open text file."""

    def __init__(self, numbers: range, bad: set[int], *, is_torn: bool = False) -> None:
        self.lines, self.bad = tempfile.TemporaryFile("w+", encoding="utf-8"), bad  # noqa: SIM115 - until it is gone
        lines = [b"\xff\n" if is_torn and number in bad else b"%d\n" % number for number in numbers]
        self.lines.buffer.write(b"".join(lines))
        self.lines.seek(0)

    def __del__(self) -> None:
        self.lines.close()

    def __next__(self) -> int:
        number = int(next(self.lines))
        return int((b"\xff" if number in self.bad else b"%d" % number).decode("utf-8"))


@pytest.mark.parametrize(
    ("make", "is_lost"),
    [
        (_lines, True),
        (_records, True),
        (Listed, True),
        (partial(Listed, is_torn=True), True),
        (_read_each, False),
        (lambda numbers, bad: map(operator.itemgetter(1), enumerate(_read_each(numbers, bad))), True),
        (lambda numbers, bad: itertools.compress(_read_each(numbers, bad), itertools.repeat(1)), True),
    ],
    ids=["text file", "CSV with a long field", "beside a list", "list", "bytes", "enumerate", "compress"],
)
def test_what_counts_or_reads_on_past_an_error_is_refused(make: Any, is_lost: bool) -> None:
    loader = DataLoader(Rows(make, {3}), None, on_error="quarantine", num_workers=0)
    if is_lost:
        with pytest.raises(NotSupported, match="no text"):
            list(loader)
    else:
        assert list(loader) == [number for number in range(40) if number != 3]


def _refuse_two(row: Any) -> Any:
    return row if row[0] != 2 else int("two")


@pytest.mark.parametrize(
    ("make", "is_refused"),
    [
        (lambda *_: Mapped(_refuse_two, zip(iter([0, 1, 2, 3, 4]), "abcde", strict=True)), False),
        (lambda *_: Mapped(_refuse_two, zip(Mapped(int, "01234"), "abcde", strict=True)), True),
        (lambda *_: Helped(int, zip("abcde", map(int, "01x34"), "abcde", strict=True)), True),
        (lambda *_: zip(map(np.random.default_rng().integers, (1, 2, -1, 3, 4)), "abcde", strict=True), True),
    ],
    ids=["around containers", "around a class", "helper", "Cython"],
)
def test_rows_of_what_may_fail_are_refused(make: Any, is_refused: bool) -> None:
    """Whether it was one of them that failed, and which, nobody can tell for sure."""
    loader = DataLoader(Rows(make, set()), None, on_error="quarantine", num_workers=0)
    if is_refused:
        with pytest.raises(NotSupported, match="come shifted"):
            list(loader)
    else:
        assert len(list(loader)) == 4
