"""`headrace.monitor` yields the same items, says what source reports say, and `explain` reads it."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace.causes import explain_logs
from headrace.launch.monitoring import SlowBatches


class Bar:
    """What a tqdm bar offers."""

    def __init__(self, items: list[int] | None = None) -> None:
        self.items, self.postfix = items or [], dict[str, Any]()

    def __iter__(self) -> Iterator[int]:
        return iter(self.items)

    def set_postfix(self, *, refresh: bool, **figures: Any) -> None:
        self.postfix = figures


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@given(items=st.lists(st.integers()))
def test_the_items_are_the_same(items: list[int]) -> None:
    watched = headrace.monitor(items)
    assert list(watched) == items
    assert list(watched) == items  # another epoch
    assert len(watched) == len(items)
    assert watched.stats().batches == 2 * len(items)


@given(num=st.integers(0, 130), asked=st.sets(st.integers(0, 130)), every=st.integers(2, 60))
def test_figures_and_lines_do_not_depend_on_when_one_asks(num: int, asked: set[int], every: int) -> None:
    lines: list[str] = []
    logger = logging.getLogger("tests.monitor.figures")
    logger.setLevel(logging.INFO)
    logger.handlers = [Lines(lines)]
    watched = headrace.monitor(range(num), every=every, slow_s=1000.0, logger=logger)
    for number in watched:
        if number in asked:
            assert watched.stats().batches == number + 1
        told = sum("Recent" in line for line in lines)
        assert told == (number + 1) // every
    assert watched.stats().batches == num
    assert len(watched._steps) == num  # the last one ends with the epoch


def test_a_loop_that_breaks_off_is_counted_too() -> None:
    watched = headrace.monitor(range(100))
    for number in watched:
        if number == 9:
            break
    assert watched.stats().batches == 10


def test_attributes_are_the_loaders_own() -> None:
    class Loader(list[int]):
        batch_size = 7

    watched = headrace.monitor(Loader([1]))
    assert watched.batch_size == 7
    with pytest.raises(AttributeError, match="nothing"):
        _ = watched.nothing
    with pytest.raises(TypeError):
        len(headrace.monitor(iter([1])))


@pytest.mark.parametrize("wrong", [{"every": 1}, {"slow_s": 0.0}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        headrace.monitor([1], **wrong)


def test_an_error_of_the_loader_arrives() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise KeyError("sample 2")

    watched = iter(headrace.monitor(broken()))
    assert next(watched) == 1
    with pytest.raises(KeyError, match="sample 2"):
        next(watched)


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def __call__(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("headrace.launch.monitoring.now", clock)
    return clock


class Rounds:
    """Every fourth batch takes long, as with four workers in lock-step."""

    num_workers = 4

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def __iter__(self) -> Iterator[int]:
        for number in range(32):
            self.clock.sleep(20.5 if number % 4 == 3 and number > 8 else 0.0005)
            yield number


def test_slow_batches_are_logged_with_cause_and_statistics(
    clock: Clock, caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    with caplog.at_level(logging.INFO, "headrace.monitor"):
        for _ in headrace.monitor(Rounds(clock), every=16):
            clock.sleep(0.16)
    lines = [record.getMessage() for record in caplog.records]
    slow = [line for line in lines if line.startswith("[SLOW BATCH #")]
    assert slow[-1] == (
        "[SLOW BATCH #31] 20.50s - batch_lockstep (every 4 batches, which is num_workers) (was 3 fast batches before)"
    )
    recent = [line for line in lines if line.startswith("[DATA LOAD] Recent 16 batches: ")]
    assert recent[1] == "[DATA LOAD] Recent 16 batches: avg=5125.4ms, min=0.5ms, max=20500.0ms, std=8876.5ms"
    assert lines[lines.index(recent[1]) + 1].startswith("[DATA LOAD] Found 4 slow batches in recent 16 batches")
    log = tmp_path / "train.log"
    log.write_text("".join(f"2025-11-15 19:26:{n % 60:02},537 WARNING: {line}\n" for n, line in enumerate(lines)))
    assert explain_logs([str(log)]).findings[0].cause.value == "batch_lockstep"


def test_a_bar_gets_its_postfix() -> None:
    bar = Bar([1, 2, 3])
    assert list(headrace.monitor(bar)) == [1, 2, 3]
    assert set(bar.postfix) == {"data", "step", "wait"}
    other = Bar()
    assert list(headrace.monitor([1], bar=other)) == [1]
    assert other.postfix["data"].endswith("ms")


def test_a_phase_names_a_long_step(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    @headrace.phase("checkpoint")
    def save() -> None:
        clock.sleep(4)

    with caplog.at_level(logging.WARNING, "headrace.monitor"):
        for number in headrace.monitor(range(12)):
            clock.sleep(0.1)
            if number == 10:
                save()
    assert [record.getMessage() for record in caplog.records] == ["[LONG STEP #10] 4.10s - phase checkpoint took 4.00s"]


def test_stats_tell_waits_and_steps_apart(clock: Clock) -> None:
    watched = headrace.monitor(Rounds(clock))
    for _ in watched:
        clock.sleep(0.16)
    stats = watched.stats()
    assert (stats.batches, stats.slow_batches) == (32, 6)
    assert stats.wait_worst_s == pytest.approx(20.5)
    assert stats.step_median_s == pytest.approx(0.16)
    assert 0.9 < stats.wait_share < 1


def test_a_phase_may_be_nested_and_left_by_an_error() -> None:
    mark = headrace.phase("outer")
    with pytest.raises(ValueError, match="inside"), mark, mark:
        raise ValueError("inside")


def test_late_batches_without_a_distance_are_not_called_lockstep() -> None:
    slow = SlowBatches(num_workers=4, at_least_s=0.05)
    found = [slow.judge(number, 1.0 if number in {11, 17, 30} else 0.0) for number in range(32)]
    causes = [one[2] for one in found if one is not None]
    assert len(causes) == 3
    assert not any("lockstep" in cause for cause in causes)


@pytest.mark.parametrize(("workers", "distance"), [(2, 10), (4, 8), (4, 40), (3, 9)])
def test_late_batches_at_a_multiple_of_the_workers_are_not_called_lockstep(workers: int, distance: int) -> None:
    """One sample in forty takes 0.3 s: in lock-step every num_workers-th batch would wait, and nearly all of those."""
    slow = SlowBatches(num_workers=workers, at_least_s=0.05)
    found = [slow.judge(number, 0.3 if number % distance == distance - 1 else 0.0) for number in range(40 * distance)]
    causes = [one[2] for one in found if one is not None]
    assert len(causes) >= 30
    assert not any("lockstep" in cause for cause in causes)


def test_a_round_without_a_wait_does_not_end_the_lockstep() -> None:
    slow = SlowBatches(num_workers=4, at_least_s=0.05)
    found = [slow.judge(number, 1.0 if number % 4 == 3 and number % 44 > 4 else 0.0) for number in range(220)]
    causes = [one[2] for one in found if one is not None]
    assert all("every 4 batches, which is num_workers" in cause for cause in causes[4:])


def test_reports_at_another_distance_than_the_workers_are_not_called_lockstep(tmp_path: Any) -> None:
    log = tmp_path / "train.log"
    lines = [
        f"[SLOW BATCH #{n}] 0.30s - unknown (a late batch) (was 9 fast batches before)\n" for n in range(9, 200, 10)
    ]
    for said, cause in (("num_workers: 2", "straggler_sample"), ("num_workers: 10", "batch_lockstep")):
        log.write_text(f"{said}\n" + "".join(lines))
        assert [one.cause.value for one in explain_logs([str(log)]).findings] == [cause]


def test_it_has_no_special_methods_but_its_own() -> None:
    watched = headrace.monitor([1, 2])
    assert not hasattr(watched, "__getitem__")
    assert watched.count(1) == 1  # what the loader offers by name, it does
