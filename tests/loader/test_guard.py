"""What the guard promises: nothing is lost or repeated, whatever fails; and what is left out is named."""

from __future__ import annotations

import errno
import logging
import os
import signal
import threading
import time
import zipfile
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.data as torch_data
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset

import headrace
from headrace import DataLoader
from headrace.engine.losses.rows_again import Claims
from headrace.errors import TooManyBad, WorkerHang, WorkerLost
from headrace.signals import QuarantineFile

CI = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
BACKENDS = ["process", "thread"]
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


def as_list(samples: list[Any]) -> list[Any]:
    return list(samples)


class Faulty(Dataset[Any]):
    """Integers; some raise, some end their process, some stand still. With a folder, only the first time."""

    def __init__(self, size: int, faults: dict[int, str], *, once_in: Path | None = None, shape: int = 3) -> None:
        self.size, self.faults, self.once_in, self.shape = size, faults, once_in, shape

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        fault = self.faults.get(index)
        if fault is not None and self._is_due(index):
            self._fail(fault, index)
        return torch.full((self.shape,), index), index

    def _is_due(self, index: int) -> bool:
        if self.once_in is None:
            return True
        path = self.once_in / str(index)
        if path.exists():
            return False
        path.touch()
        return True

    def _fail(self, fault: str, index: int) -> None:
        match fault:
            case "raise":
                raise ValueError(f"sample {index} is broken")
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                os._exit(3)
            case "segv":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "hang":
                time.sleep(1000)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "transient":
                raise OSError(errno.EIO, "Input/output error", f"scan_{index}.npz")


def keys_of(batch: Any) -> list[int]:
    return [key for _, key in batch] if isinstance(batch[0], tuple) else batch[1].tolist()


def expected(size: int, bad: set[int]) -> list[int]:
    good = [index for index in range(size) if index not in bad]
    return good + good[: size - len(good)]


def run(loader: DataLoader[Any]) -> list[int]:
    batches = [keys_of(batch) for batch in loader]
    sizes = [len(batch) for batch in batches]
    assert len(batches) == len(loader)
    assert set(sizes[:-1]) <= {loader.batch_size}
    return [key for batch in batches for key in batch]


@CI
@given(
    faults=st.dictionaries(st.integers(0, 59), st.sampled_from(["raise", "kill", "exit"]), max_size=3),
    batch_size=st.integers(1, 20),
    num_workers=st.integers(0, 3),
    backend=st.sampled_from(BACKENDS),
    collate=st.sampled_from([None, as_list]),
)
def test_the_epoch_is_the_order_without_what_was_left_out(
    faults: dict[int, str], batch_size: int, num_workers: int, backend: str, collate: Any
) -> None:
    if num_workers == 0:
        faults = dict.fromkeys(faults, "raise")  # there is no worker that could die
    loader = DataLoader(
        Faulty(60, faults),
        batch_size,
        num_workers=num_workers,
        backend=backend,
        collate_fn=collate,
        on_error="quarantine",
        max_bad=10,
    )
    assert run(loader) == expected(60, set(faults))
    assert sorted(failure.key for failure in loader.quarantine) == sorted(faults)
    account = loader.stats().account
    assert (account.given_out, account.delivered, account.quarantined) == (60, 60 - len(faults), len(faults))
    assert account.in_flight == 0
    # what was condemned once is not tried again
    assert run(loader) == expected(60, set(faults))
    assert len(loader.quarantine) == len(faults)


class Counting(Faulty):
    """Leaves a line for each sample that is fetched."""

    def __init__(self, size: int, faults: dict[int, str], path: Path) -> None:
        super().__init__(size, faults)
        self.path = path

    def __getitem__(self, index: int) -> Any:
        with open(self.path, "a") as file:
            file.write(f"{index}\n")
        return super().__getitem__(index)


def test_what_was_done_is_not_fetched_again_because_a_sample_was_left_out(tmp_path: Path) -> None:
    """One worker, which has one sample in hand: of the batches ahead, only that one may be fetched twice."""
    path = tmp_path / "fetched"
    loader = DataLoader(
        Counting(160, {40: "raise", 97: "raise"}, path), 16, num_workers=1, on_error="quarantine", prefetch_factor=4
    )
    assert run(loader) == expected(160, {40, 97})
    fetched = [int(line) for line in path.read_text().split()]
    assert set(fetched) == set(range(160))
    again = len(fetched) - len(set(fetched)) - 2  # the two that fill the end come twice
    # a chunk or two each time, what the worker had in hand and before it; all that was ahead would be 128
    assert again <= 4 * 16


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("collate", [None, as_list], ids=["slots", "general"])
def test_deaths_change_nothing_about_the_epoch(tmp_path: Path, backend: str, collate: Any) -> None:
    faults = {3: "kill", 4: "kill", 31: "exit", 77: "segv", 99: "kill"}
    loader = DataLoader(
        Faulty(100, faults, once_in=tmp_path), 8, num_workers=3, backend=backend, collate_fn=collate, shuffle=False
    )
    assert run(loader) == list(range(100))
    assert loader.stats().workers_lost >= 1
    assert loader.stats().account.delivered == 100
    assert loader.quarantine == ()


@pytest.mark.parametrize("start_method", ["spawn", pytest.param("forkserver", marks=pytest.mark.slow)])
def test_deaths_under_other_start_methods(tmp_path: Path, start_method: str) -> None:
    dataset = Faulty(24, {5: "kill"}, once_in=tmp_path)
    assert run(DataLoader(dataset, 4, num_workers=2, multiprocessing_context=start_method)) == list(range(24))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_end_of_the_fork_server(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    options = {"backend": backend, "num_workers": 2, "multiprocessing_context": "forkserver"}
    given = []
    for batch in DataLoader(Faulty(200, {}), 5, **options):
        given += keys_of(batch)
        if len(given) == 30:
            os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)  # type: ignore[attr-defined]
    assert given == list(range(200))
    assert "the fork server has ended" in caplog.text  # and not that a data set left the process
    assert "ended itself" not in caplog.text


def test_shuffled_epochs_stay_as_the_seed_says(tmp_path: Path) -> None:
    def order(dataset: Dataset[Any], **own: Any) -> list[int]:
        generator = torch.Generator().manual_seed(5)
        return [
            key
            for batch in DataLoader(dataset, 7, num_workers=2, shuffle=True, generator=generator, **own)
            for key in keys_of(batch)
        ]

    plain = order(Faulty(70, {}))
    assert order(Faulty(70, {9: "kill", 50: "exit"}, once_in=tmp_path)) == plain
    without = [key for key in plain if key not in (9, 50)]
    assert order(Faulty(70, {9: "raise", 50: "kill"}), on_error="quarantine") == without + without[:2]


class Drawing(Faulty):
    def __getitem__(self, index: int) -> Any:
        super().__getitem__(index)
        return torch.rand(2), index


def test_what_a_sample_draws_does_not_depend_on_what_fails(tmp_path: Path) -> None:
    def draws(faults: dict[int, str], once_in: Path | None = None, workers: int = 2) -> dict[int, list[float]]:
        torch.manual_seed(3)
        loader = DataLoader(Drawing(40, faults, once_in=once_in), 5, num_workers=workers, on_error="quarantine")
        found: dict[int, list[float]] = {}
        for batch, keys in loader:
            for row, key in zip(batch.tolist(), keys.tolist(), strict=True):
                found.setdefault(key, row)  # the fill at the end draws anew
        return found

    plain = draws({})
    assert draws({7: "kill", 21: "kill"}, tmp_path) == plain
    assert draws({7: "raise", 21: "raise"}) == {key: row for key, row in plain.items() if key not in (7, 21)}
    assert draws({7: "raise"}, workers=3) == {key: row for key, row in plain.items() if key != 7}


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("collate", [None, as_list], ids=["slots", "general"])
def test_a_function_decides(tmp_path: Path, num_workers: int, collate: Any) -> None:
    seen: list[headrace.SampleFailure] = []

    def decide(failure: headrace.SampleFailure) -> Any:
        seen.append(failure)
        if failure.key == 5:
            return headrace.RETRY
        return (torch.full((3,), -1), -11) if failure.key == 11 else headrace.SKIP

    once = Faulty(20, {5: "raise"}, once_in=tmp_path)
    loader = DataLoader(once, 5, num_workers=num_workers, on_error=decide, collate_fn=collate)
    assert run(loader) == list(range(20))
    assert [failure.key for failure in seen] == [5]
    always = Faulty(20, {11: "raise", 14: "raise"})
    loader = DataLoader(always, 5, num_workers=num_workers, on_error=decide, collate_fn=collate)
    assert run(loader) == [key if key != 11 else -11 for key in expected(20, {14})]
    assert {failure.key for failure in seen} == {5, 11, 14}
    (left_out,) = loader.quarantine
    assert (left_out.key, left_out.exception) == (14, "ValueError")
    assert "sample 14 is broken" in left_out.traceback


def test_a_function_may_raise_or_ask_to() -> None:
    def refuse(failure: headrace.SampleFailure) -> Any:
        return headrace.RAISE

    def stumble(failure: headrace.SampleFailure) -> Any:
        raise KeyError("in the policy itself")

    for num_workers in (0, 2):
        with pytest.raises(ValueError, match="sample 5 is broken"):
            run(DataLoader(Faulty(20, {5: "raise"}), 5, num_workers=num_workers, on_error=refuse))
        with pytest.raises(KeyError, match="in the policy itself") as caught:
            run(DataLoader(Faulty(20, {5: "raise"}), 5, num_workers=num_workers, on_error=stumble))
        assert "worker process" not in str(caught.value)


def test_a_wrong_path_does_not_condemn_a_data_set(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    dataset = Faulty(1000, dict.fromkeys(range(1000), "raise"))
    for num_workers in (0, 2):
        loader = DataLoader(dataset, 10, num_workers=num_workers, on_error="quarantine", quarantine_file=path)
        with pytest.raises(TooManyBad, match="too many samples fail") as caught:
            run(loader)
        assert "max_bad" in caught.value.next_step
        assert len(loader.quarantine) <= 12
        path.unlink()


def test_the_file_names_what_was_left_out_and_a_later_run_skips_it(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    faults = {5: "raise", 17: "kill"}
    loader = DataLoader(Faulty(40, faults), 8, num_workers=2, on_error="quarantine", quarantine_file=path)
    run(loader)
    written = [condemned.failure for condemned in QuarantineFile(path).read().samples]
    assert sorted(failure.key for failure in written) == [5, 17]
    assert {failure.key: failure.kind.value for failure in written} == {5: "exception", 17: "worker_lost"}
    assert {failure.key: failure.tries for failure in written} == {5: 1, 17: 3}
    for num_workers in (0, 2):
        later = DataLoader(Faulty(40, faults), 8, num_workers=num_workers, skip_quarantined=path)
        assert run(later) == expected(40, {5, 17})
        assert later.quarantine == ()
        assert later.stats().workers_lost == 0


def test_transient_errors_are_waited_for(tmp_path: Path) -> None:
    for num_workers in (0, 2):
        folder = tmp_path / str(num_workers)
        folder.mkdir()
        dataset = Faulty(12, {7: "transient"}, once_in=folder)
        loader = DataLoader(dataset, 4, num_workers=num_workers, on_error="quarantine")
        assert run(loader) == list(range(12))
        assert loader.quarantine == ()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sample_that_stands_still(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    loader = DataLoader(Faulty(40, {9: "hang"}), 4, num_workers=2, backend=backend, on_error="quarantine", timeout=1.0)
    assert run(loader) == expected(40, {9})
    (failure,) = loader.quarantine
    assert failure.kind.value == "hang"
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert "test_guard.py" in said  # where it stands
    assert "_fail" in said


def test_a_sample_that_stands_still_once(tmp_path: Path) -> None:
    dataset = Faulty(40, {9: "hang"}, once_in=tmp_path)
    loader = DataLoader(dataset, 4, num_workers=2, on_error="quarantine", timeout=1.0)
    assert run(loader) == list(range(40))
    assert loader.quarantine == ()


def test_a_hang_under_raise_is_an_error_with_its_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.engine.guard.guard._LEAST_PATIENCE_S", 1.0)
    loader = DataLoader(Faulty(80, {60: "hang"}), 4, num_workers=2)
    with pytest.raises(WorkerHang, match="stood still"):
        run(loader)


def test_a_hang_by_fork_says_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    class Locked(Faulty):
        def __getitem__(self, index: int) -> Any:
            if index == 60:
                with lock:
                    pass
            return super().__getitem__(index)

    monkeypatch.setattr("headrace.engine.guard.guard._LEAST_PATIENCE_S", 1.0)
    lock = threading.Lock()
    with lock, pytest.raises(WorkerHang, match="is in a deadlock") as caught:
        run(DataLoader(Locked(80, {}), 4, num_workers=2, multiprocessing_context="fork"))
    assert "multiprocessing_context='spawn'" in caught.value.next_step


def test_a_stopped_worker_is_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset = Faulty(300, {145: "stop"}, once_in=tmp_path)
    loader = DataLoader(dataset, 10, num_workers=2, on_error="quarantine", timeout=1.0)
    assert run(loader) == list(range(300))
    assert "is stopped" in caplog.text


def test_a_crash_loop_ends_with_an_error() -> None:
    class Doomed(Faulty):
        def __getitem__(self, index: int) -> Any:
            os._exit(7)

    with pytest.raises((WorkerLost, TooManyBad)):
        run(DataLoader(Doomed(10_000, {}), 10, num_workers=2, on_error="quarantine"))
    with pytest.raises(WorkerLost):
        run(DataLoader(Doomed(10_000, {}), 10, num_workers=2))


def doomed_start(worker: int) -> None:
    os._exit(9)


def test_workers_that_never_start_are_an_error_soon() -> None:
    started = time.monotonic()
    with pytest.raises(WorkerLost, match="exit code 9"):
        run(DataLoader(Faulty(100, {}), 10, num_workers=2, worker_init_fn=doomed_start))
    assert time.monotonic() - started < 60


def test_errors_that_are_no_samples_fault_are_raised() -> None:
    def broken(samples: list[Any]) -> Any:
        raise ArithmeticError("in the collation")

    with pytest.raises(ArithmeticError, match="in the collation"):
        run(DataLoader(Faulty(20, {}), 5, num_workers=2, collate_fn=broken, on_error="quarantine"))

    def stumble(worker: int) -> None:
        raise ArithmeticError("before any sample")

    with pytest.raises(ArithmeticError, match="before any sample"):
        run(DataLoader(Faulty(20, {}), 5, num_workers=2, worker_init_fn=stumble, on_error="quarantine"))


class Stream(IterableDataset[int]):
    """An iterator that fails here and there and goes on."""

    class Rows:
        def __init__(self) -> None:
            self.at = 0

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            self.at += 1
            if self.at > 20:
                raise StopIteration
            if self.at in (4, 11):
                raise ValueError(f"row {self.at} is broken")
            return self.at

    def __iter__(self) -> Any:
        return Stream.Rows()


def test_an_iterable_data_set_passes_over_what_fails() -> None:
    loader = DataLoader(Stream(), 4, num_workers=1, on_error="quarantine")
    got = [value for batch in loader for value in batch.tolist()]
    assert got == [i for i in range(1, 21) if i not in (4, 11)]
    assert [failure.message for failure in loader.quarantine] == ["row 4 is broken", "row 11 is broken"]


class Numbers(IterableDataset[int]):
    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        for number in range(info.id, 120, info.num_workers):
            time.sleep(0.001)
            yield number


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("collate", [None, as_list], ids=["slots", "general"])
def test_a_stream_goes_on_where_its_worker_died(backend: str, collate: Any) -> None:
    expected_batches = [list(map(int, batch)) for batch in torch_data.DataLoader(Numbers(), 7, num_workers=2)]
    loader = DataLoader(Numbers(), 7, num_workers=2, backend=backend, collate_fn=collate)
    got: list[list[int]] = []
    for number, batch in enumerate(loader):
        got.append(list(map(int, batch)))
        if number in (2, 5, 9):
            try:
                os.kill(loader.stats().workers[number % 2].pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    assert got == expected_batches
    assert loader.stats().workers_lost >= 1


class FailsInItsSecondLife(IterableDataset[int]):
    """Its worker dies once; the one that begins again meets an error before it has come to where the first one was."""

    def __init__(self, folder: Path, *, fails_at: int) -> None:
        self.folder, self.fails_at = folder, fails_at

    def __iter__(self) -> Any:
        died = self.folder / "died"
        has_died = died.exists()
        for number in range(60):
            if number == 30 and not has_died:
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if has_died and number == self.fails_at:
                raise ConnectionError(f"row {number} is out of reach")
            yield number


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("collate", [None, as_list], ids=["slots", "general"])
@pytest.mark.parametrize("fails_at", [0, 9, 27, 29])
def test_an_error_while_a_stream_catches_up_repeats_nothing(
    tmp_path: Path, backend: str, collate: Any, fails_at: int
) -> None:
    dataset = FailsInItsSecondLife(tmp_path, fails_at=fails_at)
    loader = DataLoader(dataset, 4, num_workers=1, backend=backend, collate_fn=collate)
    iterator = iter(loader)
    got: list[int] = []

    def take() -> None:
        for batch in iterator:
            got.extend(map(int, batch))

    with pytest.raises(ConnectionError, match=f"row {fails_at} is out of reach"):
        take()
    assert got == list(range(28))  # the batches that were whole when the worker died, once each
    take()  # a loop that goes on gets nothing twice
    assert got == list(range(28))


def test_killed_again_and_again_while_it_runs(caplog: pytest.LogCaptureFixture) -> None:
    class Slow(Faulty):
        def __getitem__(self, index: int) -> Any:
            time.sleep(0.004)
            return super().__getitem__(index)

    caplog.set_level(logging.ERROR)
    for collate in (None, as_list):
        loader = DataLoader(Slow(400, {}), 10, num_workers=3, collate_fn=collate)
        keys: list[int] = []
        killed: set[int] = set()
        for number, batch in enumerate(loader):
            keys += keys_of(batch)
            if number % 3 == 1:
                victim = loader.stats().workers[number // 3 % 3]
                if victim.pid:
                    try:
                        os.kill(victim.pid, signal.SIGKILL)
                    except ProcessLookupError:
                        continue
                    killed.add(victim.pid)
        assert keys == list(range(400))
        # how many are noticed before the epoch ends is the machine's speed: an idle one may lie dead unnoticed
        assert 1 <= loader.stats().workers_lost <= len(killed)


def test_after_a_loss_a_batch_that_a_worker_lets_go_of_in_a_moment_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[int] = set()

    def is_in_hand(_: Claims, seq: int) -> bool:  # at the first look at each batch, as on full cores
        is_first = seq not in asked
        asked.add(seq)
        return is_first

    monkeypatch.setattr(Claims, "is_in_hand", is_in_hand)
    loader = DataLoader(Faulty(1 << 20, {}), 4, num_workers=2)
    batches = iter(loader)
    next(batches)
    victim = loader.stats().workers[0].pid
    assert victim
    os.kill(victim, signal.SIGKILL)
    while not loader.stats().workers_lost:
        next(batches)
    began = time.perf_counter()
    for _ in range(40):
        next(batches)
    assert time.perf_counter() - began < 40 * 0.05 / 2


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="quarantine"):
        DataLoader(Faulty(4, {}), on_error="ignore")
    with pytest.raises(TypeError, match="max_bad"):
        DataLoader(Faulty(4, {}), max_bad="many")  # type: ignore[arg-type]
    with pytest.raises(OSError, match="nowhere"):
        DataLoader(Faulty(4, {}), on_error="quarantine", quarantine_file=tmp_path / "nowhere" / "bad.jsonl")
    with pytest.raises(ValueError, match="timeout"):
        DataLoader(Faulty(4, {}), timeout=float("nan"))
    for skipped in (3, b"bad.jsonl"):
        with pytest.raises(TypeError, match="skip_quarantined takes"):
            DataLoader(Faulty(4, {}), skip_quarantined=skipped)  # type: ignore[arg-type]
    for name in ("", "a\0b"):
        with pytest.raises(ValueError, match="names no file"):
            DataLoader(Faulty(4, {}), quarantine_file=name)
    with pytest.raises(TypeError, match="3 names no file"):
        DataLoader(Faulty(4, {}), quarantine_file=3)  # type: ignore[arg-type]


def test_one_worker_is_told_in_the_singular(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="headrace")
    loader: DataLoader[Any] = DataLoader(Faulty(4, {}), num_workers=1)
    assert len(list(loader)) == 4
    assert "1 worker>" in repr(loader)
    assert "1 worker (" in caplog.text
    assert "1 workers" not in caplog.text


def test_one_place_is_told_in_the_singular(caplog: pytest.LogCaptureFixture) -> None:
    list(DataLoader(Faulty(4, {1: "raise"}), 2, num_workers=1, on_error="quarantine", max_bad=1))
    assert "4 samples given out = 3 delivered + 1 quarantined; 1 place at the end was filled" in caplog.text


class Zipped(Dataset[int]):
    """A data set in which one file is no archive."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index == 5:
            zipfile.ZipFile(self.path)
        return index


def test_a_known_message_comes_with_what_is_known_of_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "cut.npz"
    path.write_bytes(b"PK, and then nothing")
    for num_workers in (0, 2):
        with pytest.raises(zipfile.BadZipFile, match="File is not a zip file") as caught:
            run(DataLoader(Zipped(path), 4, num_workers=num_workers))
        (note,) = caught.value.__notes__
        assert "headrace explain --message KB-32" in note
        caplog.clear()
        assert len(list(DataLoader(Zipped(path), 4, num_workers=num_workers, on_error="quarantine"))) == 2
        assert sum("headrace explain --message KB-32" in record.getMessage() for record in caplog.records) == 1


def test_an_unknown_message_comes_without_notes() -> None:
    for num_workers in (0, 2):
        with pytest.raises(ValueError, match="sample 5 is broken") as caught:
            run(DataLoader(Faulty(20, {5: "raise"}), 5, num_workers=num_workers))
        assert not getattr(caught.value, "__notes__", [])
