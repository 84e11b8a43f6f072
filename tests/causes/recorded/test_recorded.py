"""Findings from recordings that are made up event by event: the cause that was put in comes out, and no other."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.causes.recorded import ProcessEvents, explain_processes
from headrace.causes.recorded.processes import starts_of
from headrace.model import Activity, Cause, Confidence, EventKind, Findings, LoaderSettings, Text, Verdict, copy_arg
from headrace.reports.contents import opening_of
from headrace.signals.recording import event_dtype

_TRAINER, _FIRST_WORKER = 100, 200
IN_PROCESS = LoaderSettings(by="torch", batch_size=4, num_workers=0)
_S = 1_000_000_000


@dataclass
class Tape:
    """The events of one process, in seconds."""

    pid: int
    role: str
    rows: list[tuple[float, float, int, int, EventKind]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    loaders: dict[int, LoaderSettings] = field(default_factory=dict)  # by the number of their name

    def add(self, kind: EventKind, start_s: float, length_s: float, value: int = 0, arg: int = 0) -> None:
        self.rows.append((start_s, length_s, value, arg, kind))

    def process(self) -> ProcessEvents:
        for number, asked_for in self.loaders.items():
            self.names[1000 + number] = asked_for.as_text()
            self.add(EventKind.LOADER, min(row[0] for row in self.rows), 0.0, number, 1000 + number)
        self.loaders = {}
        events = np.zeros(len(self.rows), event_dtype())
        for place, (start_s, length_s, value, arg, kind) in enumerate(sorted(self.rows, key=lambda row: row[0])):
            events[place] = (round(start_s * _S), round(length_s * _S), value, self.pid, arg, 0, int(kind))
        return ProcessEvents(self.pid, _TRAINER if self.role == "worker" else 1, self.role, events, self.names)


def simulate(
    *,
    workers: int,
    task_s: list[float],
    step_s: float,
    cpu: float = 0.1,
    read_bytes: int = 0,
    interruptions: dict[int, tuple[EventKind, float]] | None = None,
    puts_early: bool = False,
    taking_s: float = 1e-4,
    by: str = "torch",
    place: str = "",
    tunes_itself: bool = False,
) -> tuple[list[ProcessEvents], float]:
    """Play torch's loader: worker k makes batches k, k + workers, …, with two in flight each; delivery is in order.

    `puts_early`: half of the batches count as queued before the worker's thread has sent them.
    """
    asked_for = LoaderSettings(by=by, place=place, batch_size=4, num_workers=workers, tunes_itself=tunes_itself)
    trainer = Tape(_TRAINER, "trainer", names={1: "Samples#1"}, loaders={1: asked_for})
    pool = [Tape(_FIRST_WORKER + number, "worker") for number in range(workers)]
    now = 1.0
    trainer.add(EventKind.EPOCH, now, 0.05, 0, 1)
    now += 0.05
    free_at = [now] * workers
    asked_at = dict.fromkeys(range(min(len(task_s), 2 * workers)), now)
    done_at: dict[int, float] = {}

    def work(until: int) -> None:
        for number in sorted(asked_at):
            if number in done_at or number > until:
                continue
            worker = number % workers
            start = max(free_at[worker], asked_at[number])
            if start > free_at[worker]:
                pool[worker].add(EventKind.IDLE, free_at[worker], start - free_at[worker])
            pool[worker].add(EventKind.FETCH, start, task_s[number], number)
            pool[worker].add(EventKind.CPU, start, task_s[number], round(cpu * task_s[number] * _S))
            if read_bytes:
                pool[worker].add(EventKind.READ, start, 0, read_bytes)
            for sample in range(4):
                pool[worker].add(EventKind.SAMPLE, start + sample * task_s[number] / 4, task_s[number] / 4, number)
            free_at[worker] = done_at[number] = start + task_s[number]

    for number in range(len(task_s)):
        work(number + 2 * workers)
        asked = now
        now = max(now, done_at[number]) + taking_s
        is_ready = done_at[number] <= asked or (puts_early and number % 2 == 0)
        trainer.add(EventKind.QUEUE_GET, asked, now - asked, int(is_ready), 1)
        trainer.add(EventKind.WAIT, asked, now - asked, number, 1)
        if number + 2 * workers < len(task_s):
            asked_at[number + 2 * workers] = now
        trainer.add(EventKind.FORWARD, now, 0.4 * step_s)
        trainer.add(EventKind.BACKWARD, now + 0.4 * step_s, 0.5 * step_s)
        now += step_s
        if interruptions and number in interruptions:
            kind, length_s = interruptions[number]
            trainer.add(kind, now, length_s, 0, 0)
            now += length_s
    trainer.add(EventKind.WAIT, now, 1e-3, -1, 1)
    return [trainer.process(), *(one.process() for one in pool)], now + 0.5


def explain(processes: list[ProcessEvents], end_s: float, cores: float = 8) -> Findings:
    found = explain_processes(processes, start_ns=0, end_ns=round(end_s * _S), cores=cores)
    assert sum(row.share for row in found.times) == pytest.approx(1)
    assert sum(row.seconds for row in found.times) == pytest.approx(end_s)
    assert [finding.share for finding in found.findings] == sorted((f.share for f in found.findings), reverse=True)
    return found


def causes(found: Findings) -> list[str]:
    return [finding.cause.value for finding in found.findings]


_DRAWN = settings(max_examples=10)


@_DRAWN
@given(workers=st.integers(2, 8), step_s=st.floats(0.02, 0.2), factor=st.floats(2.0, 8.0), seed=st.integers(0, 99))
def test_a_pool_that_is_too_slow_is_data_bound(workers: int, step_s: float, factor: float, seed: int) -> None:
    spread = np.random.default_rng(seed).uniform(0.95, 1.05, 30 * workers)
    tasks = list(factor * workers * step_s * spread)
    found = explain(*simulate(workers=workers, task_s=tasks, step_s=step_s, cpu=0.95))
    # where workers drift apart the waits become even: still a pool that is too slow
    assert causes(found) in (["batch_lockstep"], ["loader_throughput"])
    assert found.verdict is Verdict.DATA_BOUND
    finding = found.findings[0]
    assert finding.figures["busy_share"] > 0.9
    assert finding.bottleneck is not None
    assert finding.bottleneck.value == "cpu_decode"


@pytest.mark.parametrize("workers", [2, 3, 5, 8])
def test_workers_that_keep_step_are_in_lockstep(workers: int) -> None:
    found = explain(*simulate(workers=workers, task_s=[4 * workers * 0.05] * (20 * workers), step_s=0.05))
    assert causes(found) == ["batch_lockstep"]
    assert found.findings[0].figures["period_steps"] == workers


def test_the_line_to_change_is_named_by_its_place_in_the_script() -> None:
    processes, end_s = simulate(workers=2, task_s=[0.4] * 40, step_s=0.05, place="/home/u/train.py:42")
    change = explain(processes, end_s).findings[0].change
    assert change == Text(
        "`num_workers=2` to `num_workers=4`, train.py:42", "train.py:42：把 `num_workers=2` 改为 `num_workers=4`"
    )
    change = explain(*simulate(workers=2, task_s=[0.4] * 40, step_s=0.05)).findings[0].change
    assert change is not None
    assert change.en.endswith(", in the DataLoader over Samples#1")


def test_rounds_of_our_own_workers_are_the_throughput_of_the_pool() -> None:
    found = explain(*simulate(workers=2, task_s=[0.1] * 60, step_s=1e-4, by="headrace"))
    assert causes(found) == ["loader_throughput"]
    assert found.findings[0].figures["period_steps"] == 2
    assert found.findings[0].confidence is Confidence.CERTAIN


@_DRAWN
@given(workers=st.integers(1, 8), step_s=st.floats(0.02, 0.2), spare=st.floats(1.5, 5.0), seed=st.integers(0, 99))
def test_a_pool_with_time_to_spare_is_no_finding(workers: int, step_s: float, spare: float, seed: int) -> None:
    spread = np.random.default_rng(seed).uniform(0.8, 1.2, 20 * workers + 20)
    found = explain(*simulate(workers=workers, task_s=list(workers * step_s / spare * spread), step_s=step_s))
    assert causes(found) == []
    assert found.verdict in {Verdict.COMPUTE_BOUND, Verdict.BALANCED}


@_DRAWN
@given(workers=st.integers(2, 6), step_s=st.floats(0.02, 0.1), seed=st.integers(0, 99))
def test_rare_heavy_samples_are_stragglers(workers: int, step_s: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    tasks = workers * step_s / 4 * np.ones(200)
    heavy = np.sort(random.choice(np.arange(10, 195), 5, replace=False))
    tasks[heavy] = step_s * 12 * workers
    found = explain(*simulate(workers=workers, task_s=list(tasks), step_s=step_s))
    assert causes(found) == ["straggler_sample"]
    said = " ".join(text.en for text in found.findings[0].evidence)
    assert "throughput to spare" in said or "samples of more than five times" in said


def test_two_late_batches_with_a_heavy_sample_each_are_told_and_the_slowest_named_first() -> None:
    tasks = [0.02] * 100
    tasks[30], tasks[71] = 0.9, 1.0
    found = explain(*simulate(workers=2, task_s=tasks, step_s=0.06))
    assert causes(found) == ["straggler_sample"]
    assert "the indices 71, 30, the slowest first" in " ".join(text.en for text in found.findings[0].evidence)
    tasks[30] = 0.02
    assert causes(explain(*simulate(workers=2, task_s=tasks, step_s=0.06))) == []  # any machine has one bad moment


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (EventKind.CHECKPOINT, "checkpoint"),
        (EventKind.EVALUATION, "evaluation"),
        (EventKind.LOGGING, "logging"),
        (EventKind.GC, "gc"),
        (EventKind.H2D, "h2d_copy"),
    ],
)
def test_interruptions_are_named_with_their_distance(kind: EventKind, cause: str) -> None:
    interruptions = dict.fromkeys(range(9, 100, 10), (kind, 0.5))
    found = explain(*simulate(workers=2, task_s=[0.01] * 100, step_s=0.05, interruptions=interruptions))
    assert causes(found) == [cause]
    finding = found.findings[0]
    assert finding.share == pytest.approx(5 / 10, abs=0.05)
    assert finding.figures["period_steps"] == 10
    assert finding.fix
    # evaluation is a cost that was chosen; copies are in every step of a training
    is_stutter = kind not in {EventKind.EVALUATION, EventKind.H2D}
    assert found.verdict is (Verdict.STUTTERING if is_stutter else Verdict.ELSEWHERE)


def test_a_log_that_is_written_in_every_step_is_no_stutter() -> None:
    writes = dict.fromkeys(range(100), (EventKind.LOGGING, 0.03))
    found = explain(*simulate(workers=2, task_s=[0.01] * 100, step_s=0.05, interruptions=writes))
    assert (causes(found), found.verdict) == (["logging"], Verdict.ELSEWHERE)


def test_a_save_of_ten_steps_is_noted_whatever_its_share_and_is_not_the_verdict() -> None:
    tasks, saves = [0.01] * 160, {100: (EventKind.CHECKPOINT, 0.36)}
    found = explain(*simulate(workers=2, task_s=tasks, step_s=0.037, interruptions=saves))
    assert (found.findings, found.verdict) == ((), Verdict.COMPUTE_BOUND)
    said = "one step in 160 takes 11 times as long: saving, 360 ms instead of 37.1 ms, 5.7 % of the time"
    assert [note.en for note in found.notes] == [said]


def test_waits_for_batches_that_were_ready_are_a_finding_though_workers_idle() -> None:
    found = explain(*simulate(workers=2, task_s=[0.005] * 100, step_s=0.02, taking_s=0.003))
    (finding,) = found.findings
    assert (finding.share, finding.confidence) == (pytest.approx(0.13, abs=0.01), Confidence.CERTAIN)
    assert finding.title == Text("batches were ready, and taking them takes long", "batch 已经就绪，取用耗时长")
    assert finding.figures["busy_share"] < 0.2


def test_a_moment_before_a_crash_is_not_certain_to_be_the_rule() -> None:
    saves = dict.fromkeys(range(3, 20, 4), (EventKind.CHECKPOINT, 0.02))
    processes, end_s = simulate(workers=2, task_s=[0.01] * 20, step_s=0.02, interruptions=saves)
    found = explain_processes(processes, start_ns=0, end_ns=round(end_s * _S), cores=8, exit_code=143)
    assert [(one.cause, one.confidence) for one in found.findings] == [
        (Cause.UNKNOWN, Confidence.CERTAIN),
        (Cause.CHECKPOINT, Confidence.POSSIBLE),
    ]


def copying(*, host_s: float, device_s: float | None) -> Findings:
    """A training of 50 ms a step that copies each batch, by the host's clock and by the device's."""
    processes, end_s = simulate(
        workers=2,
        task_s=[0.01] * 100,
        step_s=0.05,
        interruptions=dict.fromkeys(range(100), (EventKind.H2D, host_s)),
    )
    events = processes[0].events
    if device_s is not None:
        events["arg"][events["kind"] == int(EventKind.H2D)] = copy_arg(round(device_s * _S))
    return explain(processes, end_s)


def test_what_a_copy_waits_for_the_device_is_no_copy() -> None:
    found = copying(host_s=0.05, device_s=0.01)
    assert causes(found) == ["h2d_copy"]
    assert found.findings[0].share == pytest.approx(0.1, abs=0.01)
    assert found.findings[0].figures["lost_s"] == pytest.approx(1.0, abs=0.01)
    assert found.findings[0].figures["host_s"] == pytest.approx(5.0, abs=0.01)
    seconds = {row.activity: (row.seconds, row.count) for row in found.times}
    assert seconds[Activity.H2D] == (pytest.approx(1.0, abs=0.01), 100)
    assert seconds[Activity.SYNC] == (pytest.approx(4.0, abs=0.01), 100)
    assert found.figures["step_typical_s"] == pytest.approx(0.09, abs=0.002)  # the wait is the device's work
    said = " ".join(text.en for text in found.findings[0].evidence)
    assert "held the host up for 5.00 s in all; in 4.00 s of that they waited" in said
    assert "upper bound" not in said


def test_a_copy_that_mostly_waits_for_the_device_is_no_finding() -> None:
    found = copying(host_s=0.05, device_s=0.002)
    assert causes(found) == []
    assert found.verdict is Verdict.COMPUTE_BOUND


@pytest.mark.parametrize("device_s", [0.05, 0.08])
def test_a_copy_that_waits_for_nothing_is_all_copy(device_s: float) -> None:
    found = copying(host_s=0.05, device_s=device_s)
    assert [row.seconds for row in found.times if row.activity is Activity.H2D] == [pytest.approx(5.0, abs=0.01)]
    assert not any(row.activity is Activity.SYNC for row in found.times)
    assert len(found.findings[0].evidence) == 1  # what it took, and nothing of a wait or a bound


def test_a_copy_by_the_host_s_clock_alone_is_an_upper_bound() -> None:
    found = copying(host_s=0.05, device_s=None)
    assert causes(found) == ["h2d_copy"]
    assert found.findings[0].share == pytest.approx(0.5, abs=0.01)
    said = [text for text in found.findings[0].evidence if "upper bound" in text.en]
    assert len(said) == 1
    assert "100 %" in said[0].en
    assert "上限" in said[0].zh
    launches = copying(host_s=0.00004, device_s=None)  # too short to hold a wait
    assert causes(launches) == []


def test_small_interruptions_are_no_finding() -> None:
    interruptions = dict.fromkeys(range(9, 100, 10), (EventKind.CHECKPOINT, 0.02))
    assert causes(explain(*simulate(workers=2, task_s=[0.01] * 100, step_s=0.05, interruptions=interruptions))) == []


def test_a_model_trained_in_eval_mode_is_trained() -> None:
    processes, end_s = simulate(workers=2, task_s=[0.01] * 50, step_s=0.05)
    trainer = processes[0]
    span = np.zeros(1, event_dtype())
    span[0] = (round(1.0 * _S), round((end_s - 1.2) * _S), 0, _TRAINER, 0, 0, int(EventKind.EVALUATION))
    events = np.sort(np.concatenate([trainer.events, span]), order="start_ns")
    processes[0] = ProcessEvents(trainer.pid, trainer.parent_pid, trainer.role, events, trainer.names)
    assert causes(explain(processes, end_s)) == []


def test_more_workers_are_estimated_from_the_time_of_a_task_and_not_beyond_the_cores() -> None:
    tasks = list(np.random.default_rng(1).uniform(0.38, 0.42, 80))
    found = explain(*simulate(workers=2, task_s=tasks, step_s=0.1, cpu=0.7), cores=16)
    assert found.findings[0].fix[0].en.startswith("num_workers=5: about ")
    short = explain(*simulate(workers=2, task_s=tasks, step_s=0.02, cpu=1.0), cores=4)
    assert "num_workers=3: about " in short.findings[0].fix[0].en
    assert "cores are used up" in short.findings[0].fix[0].en


def test_reading_at_a_high_rate_is_bandwidth_and_at_a_low_one_latency() -> None:
    for read_bytes, bottleneck in ((200_000_000, "io_bandwidth"), (50_000, "io_latency")):
        tasks = list(np.random.default_rng(1).uniform(0.9, 1.1, 60))
        found = explain(*simulate(workers=2, task_s=tasks, step_s=0.05, read_bytes=read_bytes))
        assert found.findings[0].bottleneck is not None
        assert found.findings[0].bottleneck.value == bottleneck


def test_a_phase_around_the_step_is_the_step() -> None:
    processes, end_s = simulate(workers=1, task_s=[0.06] * 60, step_s=0.05)
    plain = explain(processes, end_s)
    tape = Tape(_TRAINER, "trainer", names={7: "train_step"})
    for start_ns in starts_of(processes[0].of(EventKind.FORWARD)).tolist():
        tape.add(EventKind.PHASE, start_ns / _S - 1e-5, 0.0499, 0, 7)
    events = np.concatenate((processes[0].events, tape.process().events))
    named = replace(processes[0], events=np.sort(events, order="start_ns"), names=processes[0].names | tape.names)
    assert explain([named, *processes[1:]], end_s).figures["step_typical_s"] == pytest.approx(
        plain.figures["step_typical_s"], rel=0.05
    )


def test_of_several_trainers_the_one_that_lost_most_speaks() -> None:
    slow, end_s = simulate(workers=2, task_s=[0.4] * 40, step_s=0.05)
    fast, _ = simulate(workers=2, task_s=[0.01] * 40, step_s=0.05)
    moved = fast[0].events.copy()
    other = ProcessEvents(101, 1, "trainer", moved, fast[0].names)
    found = explain([other, *slow], end_s)
    assert causes(found) == ["batch_lockstep"]
    assert any("2 training processes" in fact.en and str(_TRAINER) in fact.en for fact in found.facts)


def test_without_a_trainer_nothing_is_concluded() -> None:
    found = explain_processes([], start_ns=0, end_ns=_S, cores=2)
    assert (found.verdict, found.findings, found.times) == (Verdict.UNKNOWN, (), ())
    assert "headrace.monitor" in found.measure[0].en


def test_the_table_tells_what_the_workers_did_meanwhile() -> None:
    found = explain(*simulate(workers=2, task_s=[0.4] * 40, step_s=0.05))
    (wait,) = [row for row in found.times if row.activity is Activity.WAIT]
    assert wait.parts is not None
    assert wait.parts["samples"] > 0.9
    assert found.as_json()["times"]


@pytest.mark.parametrize(
    ("num_made", "is_kept", "do"),
    [
        (4, False, "make the loader once, before the loop (train.py:31), with `persistent_workers=True`"),
        (4, True, "make the loader once, before the loop (train.py:31), with `persistent_workers=True`"),
        (1, False, "`persistent_workers=True`: the workers"),
        (1, True, "do less before a worker's first sample"),
    ],
)
def test_slow_starts_of_epochs_are_told_what_their_loader_lacks(num_made: int, is_kept: bool, do: str) -> None:
    asked_for = LoaderSettings(by="torch", place="/home/u/train.py:31", num_workers=2, persistent_workers=is_kept)
    tape, now = Tape(_TRAINER, "trainer", names={1: "Samples#1"}, loaders={1: asked_for}), 1.0
    for epoch in range(4):
        tape.add(EventKind.EPOCH, now, 0.3, epoch if num_made == 1 else 0, 1)
        now += 0.3
        for batch in range(10):
            tape.add(EventKind.WAIT, now, 1e-4, batch, 1)
            tape.add(EventKind.BACKWARD, now + 1e-3, 0.01)
            now += 0.02
        tape.add(EventKind.WAIT, now, 1e-4, -1, 1)
        now += 1e-3
    (finding,) = explain([tape.process()], now + 0.1).findings
    assert finding.cause is Cause.EPOCH_START
    assert finding.fix[0].en.startswith(do)
    assert "the first epoch's start, 300 ms, is not among them" in finding.evidence[0].en


def test_saving_beside_the_training_is_advised_once() -> None:
    saves = dict.fromkeys(range(5, 60, 10), (EventKind.CHECKPOINT, 0.5))
    (finding,) = explain(*simulate(workers=2, task_s=[0.01] * 60, step_s=0.05, interruptions=saves)).findings
    assert finding.cause is Cause.CHECKPOINT
    assert sum("async_save" in text.en for text in finding.fix) == 1
    assert any("local disk" in text.en for text in finding.fix)


def test_batches_of_a_generator_are_no_matter_of_workers() -> None:
    tape, now = Tape(_TRAINER, "trainer", names={1: "loader"}), 1.0
    for batch in range(60):
        tape.add(EventKind.WAIT, now, 0.02, batch, 1)
        tape.add(EventKind.BACKWARD, now + 0.02, 0.01)
        now += 0.03
    (finding,) = explain([tape.process()], now + 0.1).findings
    said = " ".join(text.en for text in (*finding.fix, *finding.futile, *finding.measure))
    assert "headrace.phase" in said
    assert not any(word in said for word in ("__getitem__", "prefetch_factor", "what the workers deliver"))


def test_slow_steps_that_are_not_explained_are_to_be_looked_into_where_they_are() -> None:
    tape, now = Tape(_TRAINER, "trainer", names={1: "Samples#1"}), 1.0
    for batch in range(60):
        tape.add(EventKind.WAIT, now, 1e-4, batch, 1)
        tape.add(EventKind.BACKWARD, now + 1e-3, 0.01)
        now += 0.02 if batch % 20 else 0.5
    found = explain([tape.process()], now + 0.1)
    assert causes(found) == ["unknown"]
    assert "headrace.phase" in found.measure[0].en
    assert next(opening_of(found, "en")).endswith("lost: slow steps that the evidence does not explain")
