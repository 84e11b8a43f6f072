"""What samples went into, from recordings made up event by event: it adds up, and what is promised comes true."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.causes.recorded import ProcessEvents
from headrace.causes.recorded.parts import SampleParts, part_rows, parts_evidence, read_parts
from headrace.model import EventKind, Findings, PartKind
from headrace.reports import findings_markdown

from .test_recorded import _DRAWN, IN_PROCESS, Tape, causes, explain, simulate

_NAMES = {1: "decode Pillow", 2: "read Path.read_bytes", 3: "transform Resize", 4: "stage mine", 5: "stage read file"}

_shares = st.lists(st.floats(0, 0.3), min_size=0, max_size=3)


@_DRAWN
@given(
    drawn=st.lists(st.tuples(st.floats(0.001, 0.1), _shares, st.floats(0, 1)), min_size=1, max_size=30),
    blocked=st.floats(0, 1),
    no_core=st.floats(0, 1),
)
def test_parts_and_the_rest_add_up_to_the_samples(
    drawn: list[tuple[float, list[float], float]], blocked: float, no_core: float
) -> None:
    worker, at = Tape(200, "worker", names=_NAMES), 1.0
    for number, (length_s, shares, off_core) in enumerate(drawn):
        worker.add(EventKind.FETCH, at, 1.1 * length_s, number)
        worker.add(EventKind.COLLATE, at + length_s, 0.1 * length_s)
        worker.add(EventKind.SAMPLE, at, length_s, number)
        for name, share in enumerate(shares, start=1 + number % 3):
            worker.add(EventKind.PART, at, share * length_s, 1000, name)
            if number % 2:
                worker.add(EventKind.OFF_CORE, at, share * length_s * off_core, 0, name)
        worker.add(EventKind.OFF_CORE, at, length_s * off_core, 0, 0)
        at += 2 * length_s
    process = worker.process()
    parts = read_parts([process], blocked=blocked, no_core=no_core, bytes_per_sample=0)
    assert parts is not None
    total = sum(length for length, _, _ in drawn)
    kinds = (PartKind.READ, PartKind.DECODE, PartKind.TRANSFORM, PartKind.STAGE)
    seconds = [*(parts.seconds(kind) for kind in kinds), parts.still_s, parts.other_s]
    assert sum(seconds) == pytest.approx(total, rel=1e-6)
    assert min(seconds) >= -1e-9
    assert parts.task_share == pytest.approx(1 / 1.1, rel=1e-6)
    rows = part_rows(parts, [process])
    if rows:
        assert sum(row.share for row in rows) == pytest.approx(1, rel=1e-6)
        assert {row.kind for row in rows} >= {PartKind.OTHER, PartKind.COLLATE}


def add_parts(
    processes: list[ProcessEvents], shares: dict[str, float], *, off_core: float = 0.0
) -> list[ProcessEvents]:
    """Say of each sample that its parts took these shares of it, and of each part that it was off the cores so long."""
    done = []
    for process in processes:
        samples = process.of(EventKind.SAMPLE)
        events = [process.events]
        names = {**process.names, **{100 + number: name for number, name in enumerate(shares)}}
        for number, share in enumerate(shares.values()):
            for kind, scale in ((EventKind.PART, 1.0), (EventKind.OFF_CORE, off_core)):
                part = samples.copy()
                part["duration_ns"] = (samples["duration_ns"] * share * scale).astype(np.int64)
                part["kind"], part["arg"], part["value"] = int(kind), 100 + number, 1_000_000
                events.append(part)
        whole = samples.copy()
        whole["duration_ns"] = (samples["duration_ns"] * off_core).astype(np.int64)
        whole["kind"], whole["arg"] = int(EventKind.OFF_CORE), 0
        joined = np.concatenate([*events, whole])
        done.append(
            ProcessEvents(
                process.pid,
                process.parent_pid,
                process.role,
                joined[np.argsort(joined["start_ns"], kind="stable")],
                names,
            )
        )
    return done


_SHARES = {"decode Pillow": 0.6, "read Path.read_bytes": 0.1, "transform Resize": 0.2}


def judged(found: Findings) -> list[tuple[object, ...]]:
    return [(one.cause, one.share, one.severity, one.confidence, one.bottleneck) for one in found.findings]


@_DRAWN
@given(workers=st.integers(1, 6), factor=st.floats(0.5, 6.0), cpu=st.floats(0.0, 1.0), reads=st.booleans())
def test_parts_explain_a_finding_and_never_change_it(workers: int, factor: float, cpu: float, reads: bool) -> None:
    processes, end_s = simulate(
        workers=workers,
        task_s=[workers * 0.05 * factor] * 60,
        step_s=0.05,
        cpu=cpu,
        read_bytes=1 << 20 if reads else 0,
    )
    without = explain(processes, end_s)
    found = explain(add_parts(processes, _SHARES, off_core=1 - cpu), end_s)
    assert judged(found) == judged(without)
    assert found.verdict is without.verdict
    for finding in found.findings:
        assert any("on average a sample takes" in text.en for text in finding.evidence)


def test_the_evidence_says_which_part_takes_the_time() -> None:
    processes, end_s = simulate(workers=2, task_s=[0.084] * 60, step_s=0.01, cpu=1.0)
    found = explain(add_parts(processes, _SHARES), end_s, cores=1)
    (finding,) = found.findings
    said = [text.en for text in finding.evidence]
    assert (
        "on average a sample takes 21.0 ms: decoding 12.6 ms (Pillow), transforms 4.20 ms (Resize), "
        "reading 2.10 ms (Path.read_bytes), other 2.10 ms" in said
    )
    assert (
        "单个样本平均 21.0 ms：解码 12.6 ms（Pillow）、变换 4.20 ms（Resize）、读取 2.10 ms（Path.read_bytes）、"
        "其他 2.10 ms" in [text.zh for text in finding.evidence]
    )
    assert finding.figures["sample_decode_share"] == pytest.approx(0.6)
    assert "headrace.codecs.jpeg" in finding.fix[0].en
    assert "it takes 60 % of a task" in finding.fix[0].en
    markdown = findings_markdown(found)
    assert "| decode: Pillow | 240 | 3.02 s | 12.6 ms | 12.6 ms |  | 60 % | 79.4 |" in markdown
    assert "| 解码：Pillow | 240 |" in findings_markdown(found, language="zh")


@_DRAWN
@given(workers=st.integers(1, 6), factor=st.floats(1.5, 6.0), share=st.floats(0.2, 0.9), step_s=st.floats(0.02, 0.1))
def test_the_gain_of_a_faster_part_comes_true(workers: int, factor: float, share: float, step_s: float) -> None:
    """The same training is played again with the part twice as fast, and with none of it."""
    task_s = workers * step_s * factor
    processes, end_s = simulate(workers=workers, task_s=[task_s] * 80, step_s=step_s, cpu=1.0)
    found = explain(add_parts(processes, {"decode Pillow": share}), end_s, cores=1)
    train_s = found.figures["train_s"]
    text = next((text.en for text in found.findings[0].fix if "twice as fast" in text.en), "")
    played = {}
    for speed, rest in (("twice", 1 - share / 2), ("free", 1 - share)):
        faster, faster_end_s = simulate(workers=workers, task_s=[task_s * rest] * 80, step_s=step_s, cpu=1.0)
        played[speed] = train_s / explain(faster, faster_end_s, cores=1).figures["train_s"]
    if not text:
        assert played["twice"] < 1.1
        return
    told = text.split("about ")[1]
    assert float(told.split(" ±")[0]) == pytest.approx(played["twice"], rel=0.1)
    assert float(told.split("at most ")[1].split(" ")[0]) == pytest.approx(played["free"], rel=0.15)


def play_in_process(task_s: float, step_s: float) -> tuple[list[ProcessEvents], float]:
    """Play a loop that fetches its batches itself."""
    trainer, now = Tape(100, "trainer", names={1: "Samples#1"}, loaders={1: IN_PROCESS}), 1.0
    trainer.add(EventKind.EPOCH, now, 0.001, 0, 1)
    for number in range(60):
        trainer.add(EventKind.WAIT, now, task_s, number, 1)
        trainer.add(EventKind.FETCH, now, task_s, number)
        trainer.add(EventKind.CPU, now, task_s, round(task_s * 1e9))
        for sample in range(4):
            trainer.add(EventKind.SAMPLE, now + sample * task_s / 4, task_s / 4, number)
        trainer.add(EventKind.FORWARD, now + task_s, step_s)
        now += task_s + step_s
    return [trainer.process()], now


def test_the_gain_of_a_faster_part_comes_true_without_workers() -> None:
    processes, end_s = play_in_process(0.08, 0.02)
    found = explain(add_parts(processes, {"decode numpy.load": 0.5}), end_s)
    told = next(text.en for text in found.findings[0].fix if "twice as fast" in text.en).split("about ")[1]
    assert found.findings[0].fix[0].en.startswith("num_workers=")  # then fetching goes on beside the step
    assert "headrace.codecs.npz" in found.findings[0].fix[1].en
    for speed, rest in ((float(told.split(" ±")[0]), 0.75), (float(told.split("at most ")[1].split(" ")[0]), 0.5)):
        _, faster_end_s = play_in_process(0.08 * rest, 0.02)
        assert speed == pytest.approx((end_s - 1) / (faster_end_s - 1), rel=0.05)


@pytest.mark.parametrize(
    ("transforms", "is_advised"),
    [
        (("ToTensor",), False),
        (("ToTensor", "Resize"), False),
        (("Pillow resize", "RandomResizedCrop"), False),  # which crops first by itself
        (("Resize", "CenterCrop"), True),
        (("cv2.resize", "RandomCrop"), True),
    ],
)
def test_to_crop_before_resizing_is_advised_to_who_does_both(transforms: tuple[str, ...], is_advised: bool) -> None:
    processes, end_s = simulate(workers=2, task_s=[0.084] * 60, step_s=0.01, cpu=1.0)
    shares = {f"transform {name}": 0.6 / number for number, name in enumerate(transforms, 1)}
    (finding,) = explain(add_parts(processes, shares), end_s, cores=1).findings
    assert f"({transforms[0]})" in finding.fix[0].en
    assert ("crop before resize" in finding.fix[0].en) is is_advised
    assert ("先裁剪再缩放" in finding.fix[0].zh) is is_advised


def test_a_decoder_that_stands_still_reads() -> None:
    processes, end_s = simulate(workers=2, task_s=[0.08] * 60, step_s=0.01, cpu=0.2, read_bytes=8 << 20)
    found = explain(add_parts(processes, {"decode numpy.load": 1.0}, off_core=0.8), end_s)
    (finding,) = found.findings
    assert finding.bottleneck is not None
    assert finding.bottleneck.value == "io_bandwidth"
    assert any("reading 16.0 ms, decoding 4.00 ms (numpy.load)" in text.en for text in finding.evidence)
    assert not any("twice as fast" in text.en for text in finding.fix)  # computing is not the limit


def test_late_samples_say_what_they_are_late_for() -> None:
    tasks = [0.01 if number % 12 else 0.8 for number in range(120)]
    processes, end_s = simulate(workers=4, task_s=tasks, step_s=0.02)
    found = explain(add_parts(processes, {"read h5py": 0.9}), end_s)
    assert causes(found)[0] == "straggler_sample"
    assert "in those, reading takes 90 % of the time" in [text.en for text in found.findings[0].evidence]


def test_where_most_of_a_sample_is_unknown_stages_are_advised() -> None:
    processes, end_s = simulate(workers=2, task_s=[0.08] * 60, step_s=0.01, cpu=1.0)
    (finding,) = explain(add_parts(processes, {"read h5py": 0.02}), end_s).findings
    assert not any("on average a sample takes" in text.en for text in finding.evidence)
    assert "with headrace.stage" in finding.fix[-1].en
    assert "98 % of a sample" in finding.fix[-1].en


def test_samples_that_are_asked_for_at_once_count_as_many() -> None:
    worker = Tape(200, "worker", names=_NAMES)
    for number in range(10):
        worker.add(EventKind.FETCH, number, 0.5, number)
        worker.add(EventKind.SAMPLE, number, 0.4, -8)
        worker.add(EventKind.PART, number, 0.2, 0, 1)
        worker.add(EventKind.OFF_CORE, number, 0, 0, 0)
    parts = read_parts([worker.process()], blocked=0, no_core=0, bytes_per_sample=0)
    assert isinstance(parts, SampleParts)
    assert parts.num_samples == 80
    assert parts.mean_s == pytest.approx(0.05)
    (said,) = parts_evidence(parts)
    assert said.en == "on average a sample takes 50.0 ms: decoding 25.0 ms (Pillow), other 25.0 ms"


def test_a_recording_from_before_parts_is_read_as_ever() -> None:
    processes, end_s = simulate(workers=2, task_s=[0.08] * 60, step_s=0.01, cpu=1.0)
    found = explain(processes, end_s)
    assert found.parts == ()
    assert "parts" not in found.as_json()


def test_a_save_says_how_much_it_writes() -> None:
    trainer = Tape(100, "trainer", names={1: "Samples#1", 2: "torch.save"}, loaders={1: IN_PROCESS})
    trainer.add(EventKind.EPOCH, 1.0, 0.01, 0, 1)
    for number in range(40):
        trainer.add(EventKind.WAIT, 1.1 + number, 0.001, number, 1)
        if number % 10 == 5:
            trainer.add(EventKind.CHECKPOINT, 1.2 + number, 0.5, 1 << 30, 2)
    (finding,) = explain([trainer.process()], 42.0).findings
    assert finding.cause.value == "checkpoint"
    assert "each writes 1.00 GiB, 2.00 GiB/s" in [text.en for text in finding.evidence]
    assert finding.figures["typical_bytes"] == 1 << 30
