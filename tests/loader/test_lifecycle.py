"""A loader's life: batches live as long as they are held, and nothing stays behind however a loop ends."""

from __future__ import annotations

import gc
import logging
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import DataLoader, get_worker_info

import headrace
from headrace.errors import BatchTimeout, BatchTooLarge, NotSupported, WorkerLost

from ..engine.datasets import (
    Augmented,
    AugmentedBatches,
    Deadly,
    DeadlyStream,
    Failing,
    LocalError,
    Mapped,
    StartsOnce,
    Streamed,
    Waiting,
    WhoAmI,
    gather,
    mark_worker,
    refuse_to_start,
)
from ..engine.sameness import assert_same

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

BACKENDS = ("process", "thread")


def loader_of(dataset: Any, **arguments: Any) -> headrace.DataLoader[Any]:
    return headrace.DataLoader(
        dataset, **{"batch_size": 4, "num_workers": 2, "multiprocessing_context": "fork", **arguments}
    )


def batches_of(dataset: Any, **arguments: Any) -> list[Any]:
    return list(loader_of(dataset, **arguments))


def wait_until(is_true: Callable[[], bool], *, within_s: float = 60.0) -> bool:
    deadline = time.monotonic() + within_s
    while not is_true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)  # the pause between two looks at what another process does
    return True


# ------------------------------------------------------------------------------------------- leases


@pytest.mark.parametrize("layout", ["large", "ragged"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_batch_of_a_list_stays_as_it_was(layout: str, backend: str) -> None:
    arguments = {"collate_fn": gather} if layout == "ragged" else {}
    expected = list(DataLoader(Mapped(layout, 100), batch_size=4, **arguments))
    assert_same(batches_of(Mapped(layout, 100), backend=backend, **arguments), expected)


def test_a_slice_keeps_its_batch_and_a_dropped_batch_returns_its_slot() -> None:
    loader = loader_of(Mapped("large", 60))
    iterator = iter(loader)
    batch = next(iterator)
    part, before = batch[0][1:2], batch[0][1:2].clone()
    del batch
    assert loader.stats().slots.leased == 1
    for _ in iterator:
        pass
    assert torch.equal(part, before)


def test_slots_return_one_by_one() -> None:
    loader = loader_of(Mapped("large", 60), persistent_workers=True)
    assert len(list(loader)) == 15  # batches that are begun before any sample is known may be in no slot
    iterator = iter(loader)
    held = [next(iterator) for _ in range(5)]
    assert loader.stats().slots.leased == 5
    while held:
        held.pop()
        assert loader.stats().slots.leased == len(held)
    rest = sum(1 for _ in iterator)
    assert rest == 10
    loader._iterator = None


def test_a_batch_may_be_used_in_another_thread_after_the_loader_is_gone() -> None:
    batches = batches_of(Mapped("large", 40))
    gc.collect()
    sums: list[float] = []
    thread = threading.Thread(target=lambda: sums.extend(float(x.sum()) for x, _ in batches))
    thread.start()
    thread.join()
    assert sums == [float(sum(range(at, at + 4)) * 10_000) for at in range(0, 40, 4)]


def test_writing_into_a_batch_changes_no_other_batch() -> None:
    loader = loader_of(Mapped("large", 80))
    for number, (x, i) in enumerate(loader):
        assert i.tolist() == list(range(4 * number, 4 * number + 4))
        assert (x == i[:, None, None]).all()
        x.fill_(-1)
        i.fill_(-1)


def test_who_holds_more_than_the_budget_gets_copies_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    row_bytes = 50 * 200 * 4
    loader = loader_of(Mapped("large", 200), memory=6 * 4 * row_bytes)
    with caplog.at_level(logging.WARNING, logger="headrace"):
        batches = list(loader)
    assert_same(batches, list(DataLoader(Mapped("large", 200), batch_size=4)))
    (told,) = [record.getMessage() for record in caplog.records if "holds" in record.getMessage()]
    assert "memory=" in told
    stats = loader.stats()
    assert stats.copied_batches > 30
    assert stats.slots.touched_bytes < 12 * 4 * row_bytes + (4 << 20)


def test_a_batch_beyond_the_budget_is_refused_before_anything_is_allocated() -> None:
    loader = loader_of(Mapped("large", 100), batch_size=50, memory="1MiB")
    iterator = iter(loader)
    with pytest.raises(BatchTooLarge, match="one batch does not fit") as caught:
        next(iterator)
    assert isinstance(caught.value, MemoryError)
    assert caught.value.evidence["budget"] == "1.00 MiB"
    assert "batch_size=" in caught.value.next_step
    assert loader.stats().slots.touched_bytes < 1 << 20
    caught.value.__traceback__ = None
    del caught
    with pytest.raises((StopIteration, BatchTooLarge)):  # and asking again does not hang
        next(iterator)


def test_the_batch_size_that_the_error_names_works() -> None:
    with pytest.raises(BatchTooLarge) as caught:
        batches_of(Mapped("large", 100), batch_size=50, memory="1MiB")
    size = int(caught.value.next_step.split("batch_size=")[1].split(",")[0])
    memory = caught.value.next_step.split('memory="')[1].split('"')[0]
    caught.value.__traceback__ = None
    assert len(batches_of(Mapped("large", 20), batch_size=size, memory="1MiB")) == -(-20 // size)
    assert len(batches_of(Mapped("large", 100), batch_size=50, memory=memory)) == 2


@pytest.mark.parametrize("kind", ["map", "iterable"])
@pytest.mark.parametrize("collation", ["default", "own"])
@pytest.mark.parametrize("taken", [1, 30])
def test_queued_data_stays_within_the_budget(kind: str, collation: str, taken: int) -> None:
    """A consumer that takes nothing for a while: workers fill what the budget allows and no more."""
    budget = 8 << 20
    dataset = Mapped("large", 2000) if kind == "map" else Streamed("large", 2000)
    arguments: dict[str, Any] = {} if collation == "default" else {"collate_fn": gather}
    loader = loader_of(dataset, memory=budget, batch_size=16, num_workers=4, prefetch_factor=16, **arguments)
    iterator = iter(loader)
    for _ in range(taken):
        next(iterator)
    previous = -1

    def is_quiet() -> bool:
        nonlocal previous
        before, previous = previous, sum(w.samples_done for w in loader.stats().workers)
        time.sleep(0.05)
        return before == previous

    assert wait_until(is_quiet)
    # beside slots and blocks there is the board, and blocks are rounded up
    assert loader.stats().slots.touched_bytes <= budget * 1.3 + (3 << 20)


# ------------------------------------------------------------------------------------------- ends of loops


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["map", "iterable"])
def test_break_and_go_on_with_the_next_epoch(kind: str, backend: str) -> None:
    dataset = Mapped("array", 40) if kind == "map" else Streamed("array", 40)
    loader = loader_of(dataset, backend=backend, persistent_workers=True)
    whole = [batch["i"].tolist() for batch in loader]
    for stop in (0, 1, 3, 9):
        for number, batch in enumerate(loader):
            assert batch["i"].tolist() == whole[number]
            if number == stop:
                break
    assert [batch["i"].tolist() for batch in loader] == whole


def test_an_exception_in_the_loop_leaves_nothing() -> None:
    loader = loader_of(Mapped("array", 40))

    def train() -> None:
        for batch in loader:
            batch["i"].sum().item() / 0

    with pytest.raises(ZeroDivisionError):
        train()
    gc.collect()
    assert wait_until(lambda: not _workers())


def _workers() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if child.status() != psutil.STATUS_ZOMBIE and not any(
                "forkserver" in a or "tracker" in a for a in child.cmdline()
            ):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def test_an_abandoned_iterator_ends_its_workers_at_once() -> None:
    iterator = iter(loader_of(Mapped("array", 4000)))
    next(iterator)
    assert len(_workers()) == 2
    del iterator
    assert wait_until(lambda: not _workers())


@pytest.mark.parametrize("epochs", [0, 2])
def test_a_loader_that_nobody_uses_any_more_ends_its_persistent_workers(epochs: int) -> None:
    gc.disable()  # a training may run for hours between two collections of what is old
    try:
        loader = loader_of(Mapped("number", 40), persistent_workers=True)
        for _ in range(epochs):
            assert len(list(loader)) == 10
        next(iter(loader))
        del loader
        assert wait_until(lambda: not _workers())
    finally:
        gc.enable()


def test_an_iterator_outlives_its_loader_with_persistent_workers() -> None:
    iterator = iter(loader_of(Mapped("number", 40), persistent_workers=True))
    assert len(list(iterator)) == 10


@pytest.mark.parametrize("persistent", [False, True])
def test_the_processes_of_workers_are_where_scripts_look_for_them(persistent: bool) -> None:
    iterator = iter(loader_of(Mapped("number", 40), num_workers=3, persistent_workers=persistent))
    next(iterator)
    processes = iterator._workers
    assert sorted(process.pid for process in processes) == sorted(worker.pid for worker in _workers())
    assert len(list(iterator)) == 9
    assert [process.pid for process in iterator._workers] == [process.pid for process in processes]
    del iterator
    for process in processes:
        process.join(60)
        assert process.exitcode == 0


def test_an_iterator_that_was_never_asked_for_a_batch() -> None:
    iterator = iter(loader_of(Mapped("array", 4000)))
    del iterator
    assert wait_until(lambda: not _workers())


def test_nested_iterators_over_one_loader() -> None:
    loader = loader_of(Mapped("number", 12))
    pairs = [(a.tolist(), b.tolist()) for a in loader for b in loader]
    single = [batch.tolist() for batch in DataLoader(Mapped("number", 12), batch_size=4)]
    assert pairs == [(a, b) for a in single for b in single]


def test_several_loaders_side_by_side() -> None:
    loaders = [loader_of(Mapped("array", 40), batch_size=size, num_workers=1) for size in (2, 4, 8)]
    loaders.append(loader_of(Streamed("array", 40), num_workers=1))
    for batches in zip(*loaders, strict=False):
        assert [b["i"][0].item() for b in batches] == [b["s"][0].item() for b in batches]


def test_an_iterator_in_a_thread() -> None:
    sums: list[int] = []

    def consume() -> None:
        sums.extend(int(batch["i"].sum()) for batch in loader_of(Mapped("array", 40)))

    threads = [threading.Thread(target=consume) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(sums) == 2 * sum(range(40))


def test_after_the_end_an_iterator_stays_at_its_end() -> None:
    for workers in (0, 2):
        iterator = iter(loader_of(Mapped("number", 4), num_workers=workers, multiprocessing_context=None))
        assert next(iterator).tolist() == [0, 1, 2, 3]
        for _ in range(3):
            with pytest.raises(StopIteration):
                next(iterator)


# ------------------------------------------------------------------------------------------- whole programs


def program(body: str) -> list[str]:
    head = """
        import os, signal, sys, time
        import torch
        import headrace
        from tests.engine.datasets import *
        def loader_of(dataset, **arguments):
            arguments = {"batch_size": 4, "num_workers": 2, "multiprocessing_context": "fork", **arguments}
            return headrace.DataLoader(dataset, **arguments)
        """
    return [sys.executable, "-W", "ignore", "-c", textwrap.dedent(head) + textwrap.dedent(body)]


def environment() -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([f"{root}/src", root, os.environ.get("PYTHONPATH", "")])}


def start(body: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        program(body), stdout=pipe, stderr=pipe, text=True, env=environment(), start_new_session=True
    )


def processes_of_session(leader: int) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_interpreter_may_end_while_iterators_live(backend: str) -> None:
    child = start(f"""
        iterators = []
        for persistent in (False, True):
            loader = loader_of(Mapped("array", 4000), backend={backend!r}, persistent_workers=persistent)
            iterators.append(iter(loader))
            print(next(iterators[-1])["i"].tolist())
        """)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (0, 2 * "[0, 1, 2, 3]\n", "")
    assert wait_until(lambda: not processes_of_session(child.pid))


@pytest.mark.parametrize("backend", BACKENDS)
def test_ctrl_c_ends_the_program_quickly_and_whole(backend: str) -> None:
    child = start(f"""
        loader = loader_of(Waiting(4000, "/nowhere", [50]), backend={backend!r})
        for number, batch in enumerate(loader):
            print(number, flush=True)
        """)
    assert child.stdout is not None
    for _ in range(12):  # batches up to the one that never comes
        child.stdout.readline()
    os.killpg(child.pid, signal.SIGINT)
    started = time.monotonic()
    _, err = child.communicate(timeout=60)
    assert time.monotonic() - started < 30  # the grace of five seconds, and not until the sample comes
    assert child.returncode in (130, -signal.SIGINT, 1)
    assert err.count("KeyboardInterrupt") == 1
    assert wait_until(lambda: not processes_of_session(child.pid))


@pytest.mark.parametrize("start_method", ["fork", "forkserver"])
def test_workers_die_with_a_killed_parent(start_method: str) -> None:
    child = start(f"""
        if __name__ == "__main__":
            loaders = [
                loader_of(Waiting(4000, "/nowhere", [50]), backend=backend, multiprocessing_context={start_method!r})
                for backend in {BACKENDS}
            ]
            for number, batches in enumerate(zip(*loaders)):
                print(number, flush=True)
        """)
    assert child.stdout is not None
    for _ in range(12):
        child.stdout.readline()
    assert len(processes_of_session(child.pid)) >= 4  # itself, two workers, and the one that holds the threads
    child.kill()
    child.communicate()
    assert wait_until(lambda: not processes_of_session(child.pid))


def test_a_child_of_the_training_process_may_end_without_ending_the_loader() -> None:
    """A forked child inherits the iterator; its end must not end the workers of its parent."""
    loader = loader_of(Mapped("array", 400))
    iterator = iter(loader)
    next(iterator)
    pid = os.fork()
    if pid == 0:
        del iterator, loader
        gc.collect()
        os._exit(0)
    os.waitpid(pid, 0)
    assert sum(1 for _ in iterator) == 99


# ------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "error", [ValueError("bad sample 9"), KeyError("missing"), OSError(2, "no such file")], ids=repr
)
def test_an_error_of_the_data_set_arrives_as_torch_raises_it_and_the_loop_can_go_on(
    backend: str, error: Exception
) -> None:
    found: list[list[Any]] = []
    for make in (DataLoader, headrace.DataLoader):
        ours = {"backend": backend} if make is headrace.DataLoader else {}
        loader = make(Failing(24, {9: error}), batch_size=4, num_workers=2, multiprocessing_context="fork", **ours)
        iterator, results = iter(loader), []
        for _ in range(6):
            try:
                results.append(next(iterator).tolist())
            except Exception as caught:
                results.append((type(caught), str(caught)))
                caught.__traceback__ = None
        with pytest.raises(StopIteration):
            next(iterator)
        found.append(results)
    theirs, ours_ = found
    assert [r for r in ours_ if isinstance(r, list)] == [r for r in theirs if isinstance(r, list)]
    (kind, text), (their_kind, their_text) = ours_[2], theirs[2]
    assert kind is their_kind
    for part in (text, their_text):
        assert f"Caught {type(error).__name__} in DataLoader worker process" in part
        assert "Original Traceback (most recent call last):" in part
        assert "raise self.errors[index]" in part
    assert text.strip().splitlines()[-1] == their_text.strip().splitlines()[-1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_lowest_failing_row_is_reported(backend: str) -> None:
    errors: dict[int, Any] = {i: ValueError(f"sample {i}") for i in (7, 5, 6)}
    for _ in range(3):
        loader = loader_of(Failing(8, errors), batch_size=8, num_workers=3, backend=backend)
        with pytest.raises(ValueError, match="sample 5"):
            next(iter(loader))


def test_an_error_that_a_text_cannot_make_arrives_as_a_runtime_error() -> None:
    with pytest.raises(RuntimeError, match=r"LocalError[\s\S]*\(1, 2\)"):
        batches_of(Failing(8, {3: LocalError(1, 2)}))


def test_an_error_whose_class_cannot_travel_arrives_as_a_runtime_error() -> None:
    class Hidden(Exception):
        pass

    with pytest.raises(RuntimeError, match="Hidden: only here"):
        batches_of(Failing(8, {3: Hidden("only here")}))


def test_an_end_of_iteration_inside_a_sample_does_not_end_the_epoch_in_silence() -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        batches_of(Failing(8, {3: StopIteration()}))


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_in_worker_init_fn(backend: str) -> None:
    with pytest.raises(FileNotFoundError, match="misses its files"):
        batches_of(Mapped("array", 8), worker_init_fn=refuse_to_start, backend=backend)


def fail_to_collate(samples: Any) -> Any:
    raise ArithmeticError(f"cannot collate {len(samples)}")


def collate_to_a_lambda(samples: Any) -> Any:
    return lambda: samples


def test_an_error_in_collate_fn() -> None:
    with pytest.raises(ArithmeticError, match="cannot collate 4"):
        batches_of(Mapped("array", 8), collate_fn=fail_to_collate)


def test_a_batch_that_cannot_be_pickled() -> None:
    with pytest.raises((AttributeError, TypeError, RuntimeError), match="pickle"):
        batches_of(Mapped("array", 8), collate_fn=collate_to_a_lambda)


def test_samples_that_do_not_unpickle_are_an_error_and_no_hang() -> None:
    class Poison:
        def __reduce__(self) -> Any:
            return int, ("not a number",)

    class Poisoned(Mapped):
        def __getitem__(self, index: Any) -> Any:
            return Poison()

    loader = loader_of(Poisoned("array", 64), batch_size=64, collate_fn=len, timeout=20)
    with pytest.raises(ValueError, match="not a number"):
        next(iter(loader))
    # one sample a batch never travels before it is collated
    assert list(loader_of(Poisoned("array", 8), batch_size=1, collate_fn=len)) == [1] * 8


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV, "exit", "sys.exit"], ids=str)
def test_a_lost_worker_is_named_with_its_signal(how: Any, persistent: bool) -> None:
    kind = str(int(how)) if isinstance(how, signal.Signals) else how
    loader = loader_of(Deadly(400, 30, kind), persistent_workers=persistent, timeout=10)
    iterator = iter(loader)
    with pytest.raises(WorkerLost) as caught:
        for _ in iterator:
            pass
    assert isinstance(caught.value, RuntimeError)
    assert caught.value.evidence["exit"] == (how.name if isinstance(how, signal.Signals) else "exit code 0")
    # what torch's loader says, which scripts look for, and then the truth
    is_signal = isinstance(how, signal.Signals)
    ended = f"is killed by signal: {signal.strsignal(how)}" if is_signal else "exited unexpectedly with exit code 0"
    assert re.match(rf"DataLoader worker \(pid \d+\) {ended}", caught.value.what)
    assert "sample 30" in caught.value.what
    assert caught.value.evidence["tries"] == 3
    caught.value.__traceback__ = None
    with pytest.raises((StopIteration, WorkerLost)):  # and asking again does not hang
        next(iterator)
    del iterator
    if persistent:  # a new epoch starts new workers
        assert next(iter(loader)).tolist() == [0, 1, 2, 3]
        loader._iterator = None


@pytest.mark.parametrize("collation", ["default", "own"])
def test_a_worker_killed_from_outside_is_replaced_and_nothing_is_lost(
    tmp_path: Path, collation: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "go on"
    own = {"collate_fn": torch.tensor} if collation == "own" else {}
    loader = loader_of(Waiting(400, str(path), [5]), timeout=20, **own)
    iterator = iter(loader)
    got = next(iterator).tolist()
    assert wait_until(lambda: any(w.current_position == 5 for w in loader.stats().workers))
    (victim,) = [w for w in loader.stats().workers if w.current_position == 5]
    os.kill(victim.pid, signal.SIGKILL)
    path.touch()
    for batch in iterator:
        got += batch.tolist()
    assert got == list(range(400))
    (said,) = [record.getMessage() for record in caplog.records if "SIGKILL" in record.getMessage()]
    assert f"worker {victim.worker} was killed: somebody sent SIGKILL" in said
    assert "while working on sample 5" in said


@pytest.mark.parametrize("how", ["exit", "sys.exit", str(int(signal.SIGKILL))])
def test_a_lost_process_of_threads(how: str) -> None:
    loader = loader_of(Deadly(400, 30, how), backend="thread", timeout=10)
    with pytest.raises(WorkerLost):
        for _ in loader:
            pass


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_iterable_data_set_that_leaves_its_process(backend: str) -> None:
    with pytest.raises(WorkerLost):
        batches_of(DeadlyStream(), backend=backend, timeout=10)


def test_an_iterable_data_set_that_cannot_begin_again_says_so() -> None:
    loader = loader_of(StartsOnce(), num_workers=1, persistent_workers=True, timeout=10)
    assert len(list(loader)) == 2
    with pytest.raises(ConnectionError, match="begun twice"):
        next(iter(loader))
    assert len(list(loader)) == 2


def test_a_timeout_names_the_sample_that_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "go on"
    loader = loader_of(Waiting(24, str(path), [9]), timeout=0.3)
    iterator = iter(loader)
    got = [_next_at_last(iterator).tolist(), _next_at_last(iterator).tolist()]
    with pytest.raises(BatchTimeout, match=r"timed out after 0.3 seconds[\s\S]*sample 9") as caught:
        next(iterator)
    assert isinstance(caught.value, RuntimeError)
    caught.value.__traceback__ = None
    path.touch()
    got += [_next_at_last(iterator).tolist() for _ in range(4)]
    assert next(iterator, None) is None
    assert got == [list(range(at, at + 4)) for at in range(0, 24, 4)]


def _next_at_last(iterator: Any) -> Any:
    """The next batch, however often the loop's patience ends before it comes: workers may start slowly."""
    for _ in range(200):
        try:
            return next(iterator)
        except BatchTimeout as error:
            error.__traceback__ = None
    return next(iterator)


# ------------------------------------------------------------------------------------------- seeds


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kinds", [("random",), ("numpy",), ("torch",), ("random", "numpy", "torch")], ids="+".join)
def test_augmentation_does_not_depend_on_workers_chunks_or_backend(kinds: tuple[str, ...], late: bool) -> None:
    runs = []
    for arguments in (
        {"num_workers": 1},
        {"num_workers": 2},
        {"num_workers": 4},
        {"num_workers": 2, "collate_fn": gather},
        {"num_workers": 2, "in_order": True, "prefetch_factor": 1},
    ):
        torch.manual_seed(3)
        loader = loader_of(Augmented(96, kinds, late=late), batch_size=8, **arguments)
        epochs = []
        for _ in range(2):
            batches = list(loader)
            if "collate_fn" in arguments:
                batches = [[torch.tensor(c, dtype=torch.float64) for c in zip(*b[0], strict=True)] for b in batches]
            epochs.append([[column.tolist() for column in batch] for batch in batches])
        assert epochs[0] != epochs[1]
        runs.append(epochs)
    assert all(run == runs[0] for run in runs)


def test_epochs_differ_with_persistent_workers_and_repeat_with_the_seed() -> None:
    runs = []
    for _ in range(2):
        torch.manual_seed(5)
        loader = loader_of(Augmented(16), persistent_workers=True)
        runs.append([[[c.tolist() for c in batch] for batch in loader] for _ in range(3)])
        del loader
    assert runs[0] == runs[1]
    assert len({repr(epoch) for epoch in runs[0]}) == 3


def test_getitems_that_draws_gives_the_same_whatever_the_workers() -> None:
    runs = []
    for workers in (1, 2, 4):
        torch.manual_seed(3)
        runs.append(
            [[c.tolist() for c in b] for b in batches_of(AugmentedBatches(64), num_workers=workers, batch_size=8)]
        )
    assert runs[0] == runs[1] == runs[2]
    shifts = [shift for batch in runs[0] for shift in set(batch[0])]
    assert len(shifts) == len(set(shifts)) == 8


class CachedBatches(AugmentedBatches):
    """Draws only for what it fetches for the first time."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.seen: set[int] = set()

    def __getitems__(self, indices: list[int]) -> list[list[float]]:
        if not self.seen.issuperset(indices):
            random.random()
            self.seen.update(indices)
        return [[float(index)] for index in indices]


def draw_behind(batch: list[list[float]]) -> list[float]:
    """A collation that draws from each global generator."""
    return [batch[0][0], random.random(), np.random.rand(), float(torch.rand(()))]


class BadBlocks(AugmentedBatches):
    """Gives a batch as one block, draws for it, and has a sample that fails."""

    def __getitems__(self, indices: list[int]) -> Any:
        if 13 in indices:
            raise ValueError("bad")
        return torch.tensor([[float(index), random.random()] for index in indices])


def keep_block(block: Any) -> Any:
    return block


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_of_batches_in_one_piece_the_bad_sample_alone_is_left_out(num_workers: int) -> None:
    torch.manual_seed(3)
    options: dict[str, Any] = {"num_workers": num_workers, "collate_fn": keep_block, "on_error": "quarantine"}
    loader: Any = headrace.DataLoader(BadBlocks(40), batch_size=8, **options)
    batches = list(loader)
    assert torch.cat(batches)[:, 0].tolist() == [
        *(index for index in range(40) if index != 13),
        0,
    ]  # the last is filled
    assert [failure.key for failure in loader.quarantine] == [13]
    assert [len(batch) for batch in batches] == [8] * 5


@pytest.mark.parametrize("on_error", ["raise", "quarantine"])
def test_a_collation_behind_getitems_draws_the_same_whatever_the_workers(on_error: str) -> None:
    """And whatever the fetch before it drew, which may depend on what a worker fetched earlier."""
    runs = []
    for workers in (1, 2, 3, "auto"):
        torch.manual_seed(3)
        options: dict[str, Any] = {"num_workers": workers, "collate_fn": draw_behind, "on_error": on_error}
        loader = loader_of(CachedBatches(320), batch_size=8, persistent_workers=workers != "auto", **options)
        runs.append([list(loader) for _ in range(2)])
    assert loader.num_workers == 0  # "auto" found that workers are not worth while: in-process it is the same
    assert runs[0] == runs[1] == runs[2]
    assert runs[0][0] == runs[3][0]  # without persistent workers torch draws a seed for each epoch
    assert all(len(set(column)) == 40 for column in zip(*runs[0][0], strict=True))
    assert not loader.quarantine


def test_the_loops_own_generators_move_as_with_torch() -> None:
    after = []
    for make in (DataLoader, headrace.DataLoader):
        torch.manual_seed(11)
        np.random.seed(11)
        for _ in make(Augmented(16), batch_size=4, num_workers=2, shuffle=True, multiprocessing_context="fork"):
            pass
        after.append((torch.rand(3).tolist(), np.random.rand()))
    assert after[0] == after[1]


# ------------------------------------------------------------------------------------------- workers


@pytest.mark.parametrize("backend", BACKENDS)
def test_workers_know_who_they_are(tmp_path: Path, backend: str) -> None:
    torch.manual_seed(1)
    dataset = WhoAmI(90, meeting=str(tmp_path), num_workers=3)  # none goes on before all are there
    loader = loader_of(dataset, batch_size=3, num_workers=3, backend=backend, worker_init_fn=mark_worker)
    rows = [row for batch in loader for row in zip(*(column.tolist() for column in batch), strict=True)]
    assert {row[0] for row in rows} == {0, 1, 2}
    assert {row[1] for row in rows} == {3}
    assert len({row[2] - row[0] for row in rows}) == 1  # base seed + worker, as in torch
    assert len({row[3] for row in rows}) == (3 if backend == "process" else 1)
    assert os.getpid() not in {row[3] for row in rows}
    assert len({(row[0], row[3], row[4]) for row in rows}) == 3
    if backend == "process":
        assert all(row[5] == 100 + row[0] for row in rows)
    assert get_worker_info() is None


def test_resizes_up_and_down_while_iterating() -> None:
    for backend in BACKENDS:
        loader = loader_of(WhoAmI(600), batch_size=6, num_workers=1, backend=backend)
        iterator = iter(loader)
        for number, workers in enumerate([1, 4, 2, 3, 1]):
            loader.resize(num_workers=workers)
            for _ in range(8):
                next(iterator)
            assert loader.num_workers == workers, number
            assert loader.stats().num_workers == workers
        loader.resize(prefetch_batches=1)
        assert loader.stats().prefetch_batches == 1
        assert sum(1 for _ in iterator) == 60


def test_resized_away_workers_end() -> None:
    loader = loader_of(Mapped("array", 4000), num_workers=4)
    iterator = iter(loader)
    next(iterator)
    assert len(_workers()) == 4
    loader.resize(num_workers=1)
    taken = 1
    while len(_workers()) > 1 and taken < 900:
        next(iterator)
        taken += 1
    assert wait_until(lambda: len(_workers()) == 1)
    assert sum(1 for _ in iterator) == 1000 - taken


@pytest.mark.parametrize("arguments", [{"num_workers": 0}, {"num_workers": True}, {"prefetch_batches": -1}], ids=str)
def test_a_senseless_resize_is_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        loader_of(Mapped("array", 8)).resize(**arguments)


def test_a_running_iterable_data_set_keeps_its_workers() -> None:
    loader = loader_of(Streamed("number", 40))
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(NotSupported, match="before the epoch starts"):
        loader.resize(num_workers=3)
    assert sum(1 for _ in iterator) == 9
    loader.resize(num_workers=3)
    assert loader.num_workers == 3
    assert sorted(i for batch in loader for i in batch.tolist()) == list(range(40))


@pytest.mark.parametrize("backend", BACKENDS)
def test_stats_are_plausible_during_and_after(tmp_path: Path, backend: str) -> None:
    loader = loader_of(WhoAmI(120, meeting=str(tmp_path), num_workers=2), batch_size=4, backend=backend)
    before = loader.stats()
    assert (before.batches_delivered, before.workers) == (0, ())
    iterator = iter(loader)
    for _ in range(10):
        next(iterator)
    during = loader.stats()
    assert during.backend == backend
    assert during.batches_delivered == 10
    assert during.samples_delivered == 40
    assert during.waits.count == 10
    assert during.num_workers == 2
    assert len(during.workers) == 2
    assert during.slots.total >= during.slots.free + during.slots.filling + during.slots.leased
    for worker in during.workers:
        assert worker.state in ("idle", "busy")
        assert 0 < worker.busy_share <= 1
        assert worker.samples_done > 0
        assert psutil.pid_exists(worker.pid)
    assert sum(1 for _ in iterator) == 20
    after = loader.stats()
    assert after.batches_delivered == 30
    assert after.samples_delivered == 120
    assert sum(w.samples_done for w in after.workers) == 120
    assert after.sample_times is not None
    assert after.sample_times.median_s > 0.001
    assert after.slot_batches == 30
    assert after.epoch == 0
    assert after.budget_bytes > 0
    assert "free" in after.budget_reason


def test_recording_can_be_off() -> None:
    loader = loader_of(Mapped("array", 40), keep_stats=False)
    assert len(list(loader)) == 10
    assert loader.stats().sample_times is None
    assert loader.stats().page_faults_per_sample is None
    assert loader.stats().batches_delivered == 10


# ------------------------------------------------------------------------------------------- leaks


def _leak_run(epochs: int) -> None:
    """Epochs of every kind; what they leave of processes, files, shared memory and memory stays bounded."""
    large, ragged = Mapped("large", 24), Mapped("ragged", 24)
    persistent = loader_of(large, persistent_workers=True)
    process = psutil.Process()

    def epoch(number: int) -> None:
        for batch in persistent:
            del batch
        kind = number % 4
        if kind == 0:
            list(loader_of(large))
        elif kind == 1:
            list(loader_of(ragged, collate_fn=gather))
        elif kind == 2:
            next(iter(loader_of(Streamed("text", 40))))
        else:
            next(iter(loader_of(large, backend="thread")))

    warm_up = max(8, epochs // 4)
    for number in range(warm_up):
        epoch(number)
    gc.collect()
    fds, rss, shm = process.num_fds(), process.memory_info().rss, len(os.listdir("/dev/shm"))
    for number in range(epochs):
        epoch(number)
    gc.collect()
    assert wait_until(lambda: len(_workers()) == 2)
    assert process.num_fds() <= fds + 2
    assert len(os.listdir("/dev/shm")) <= shm + 2
    # an arena alone maps some MiB; one that stays each epoch would show a hundred times
    assert process.memory_info().rss - rss < (8 << 20) + epochs * (64 << 10)
    assert process.num_threads() < 32


def test_twenty_epochs_leave_nothing() -> None:
    _leak_run(20)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_hundred_epochs_leave_nothing() -> None:
    _leak_run(200)


# ------------------------------------------------------------------------------------------- surroundings


@pytest.mark.root
@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no /dev/shm here")
def test_a_tiny_dev_shm_is_no_problem() -> None:
    """Batches of 16 MiB where /dev/shm has room for one."""
    body = f"""
        class Big(Mapped):
            def __getitem__(self, index):
                return torch.full((4 << 20,), index, dtype=torch.uint8)
        def stack(samples):
            return torch.utils.data.default_collate(samples)
        for backend in {BACKENDS}:
            for collate in (None, gather, stack):
                loader = loader_of(Big("array", 32), backend=backend, collate_fn=collate)
                total = 0
                for batch in loader:
                    total += sum(int(x[-1]) for x in (batch[0] if isinstance(batch, tuple) else batch))
                print(total)
        print(os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize)
        """
    mount = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"'
    inner = program(body)
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount, "sh", *inner],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=100,
    )
    if "ermission denied" in done.stderr or "not permitted" in done.stderr:
        pytest.skip("mounts are not permitted here")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [*[str(sum(range(32)))] * 6, str(1 << 20)]
