"""What each pass over a loader was for, by what was done with its batches, whatever `eval()` was called on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from headrace.model import Activity, Confidence, EventKind, Findings, LoaderRole, LoaderRow, LoaderSettings, Verdict
from headrace.reports import contents

from .test_recorded import IN_PROCESS, Tape, causes, explain

_TRAIN, _VALID, _THIRD = 1, 2, 3
_BATCH_S = 0.05


class Script:
    """A script, played: its clock goes on with everything that it does."""

    def __init__(self) -> None:
        names = {_TRAIN: "Train#1", _VALID: "Valid#1", _THIRD: "Third#1"}
        self.tape = Tape(100, "trainer", names=names, loaders=dict.fromkeys(names, IN_PROCESS))
        self.now = 1.0

    def do(self, kind: EventKind, length_s: float, value: int = 0, arg: int = 0) -> None:
        self.tape.add(kind, self.now, length_s, value, arg)
        self.now += length_s

    def over(
        self, loader: int, count: int, *, ends: bool = True, wait_s: float = _BATCH_S, ahead: int = 0
    ) -> Iterator[int]:
        """Iterate; `ahead`: a wrapper asks for so many batches before it gives the first. It may end with a `break`."""
        self.do(EventKind.EPOCH, 0.001, 0, loader)
        asked = 0
        for number in range(count):
            while asked < min(count, number + 1 + ahead):
                self.do(EventKind.WAIT, wait_s, asked, loader)
                asked += 1
            if ends and ahead and asked == count == number + 1:
                self.do(EventKind.WAIT, 0.001, -1, loader)
            yield number
        if ends and not ahead:
            self.do(EventKind.WAIT, 0.001, -1, loader)

    def call(self, length_s: float = 0.01) -> None:
        self.do(EventKind.FORWARD, length_s)

    def step(self, *, optimizer: bool = True) -> None:
        self.call()
        self.do(EventKind.BACKWARD, 0.02)
        if optimizer:
            self.do(EventKind.OPTIMIZER, 0.01)

    def evaluate(self, count: int = 4, loader: int = _VALID, *, ends: bool = True) -> None:
        for _ in self.over(loader, count, ends=ends):
            self.call()

    def explain(self) -> Findings:
        self.do(EventKind.LOGGING, 0.001)
        return explain([self.tape.process()], self.now)


def roles(found: Findings) -> dict[str, list[tuple[str, int, int]]]:
    """By loader: its roles, each with its passes and batches."""
    said: dict[str, list[tuple[str, int, int]]] = {}
    for row in found.loaders:
        said.setdefault(row.name, []).append((row.role.value, row.passes, row.batches))
    return said


def seconds(found: Findings, activity: Activity) -> float:
    return sum(row.seconds for row in found.times if row.activity is activity)


def test_a_validation_after_each_epoch_is_evaluation_without_a_word_of_the_model() -> None:
    script = Script()
    for _ in range(3):
        for _ in script.over(_TRAIN, 20, wait_s=0.0001):
            script.step()
        script.evaluate(12)
    found = script.explain()
    assert roles(found) == {"Train#1": [("training", 3, 60)], "Valid#1": [("evaluation", 3, 36)]}
    (finding,) = found.findings
    assert (finding.cause.value, finding.figures["count"]) == ("evaluation", 3)
    assert finding.evidence[0].en.startswith("3 evaluations (batches of Valid#1 without a training step) took 2.17 s")
    assert "Valid#1 的 batch，没有训练步" in finding.evidence[0].zh
    assert seconds(found, Activity.EVALUATION) == pytest.approx(3 * (0.002 + 12 * 0.06))
    assert found.figures["steps"] == 57
    assert found.figures["wait_share"] < 0.01


def test_one_inside_the_epoch_before_the_first_step_and_at_the_end() -> None:
    script = Script()
    script.evaluate(2)  # a sanity check
    for number in script.over(_TRAIN, 40):
        if number % 10 == 9:
            script.evaluate(4, ends=False)
            script.now += 0.5  # nobody knows
        script.step()
    script.evaluate(6, ends=False)
    found = script.explain()
    assert roles(found) == {"Train#1": [("training", 1, 40)], "Valid#1": [("evaluation", 6, 24)]}
    # the call for the last batch is in it, that of the step after it is not
    assert seconds(found, Activity.EVALUATION) == pytest.approx(6 * 0.001 + 24 * 0.06 - 4 * 0.01 + 0.001)


def test_one_batch_of_validation_between_a_batch_and_its_backward_is_evaluation() -> None:
    script = Script()
    for number in script.over(_TRAIN, 40, wait_s=0.0001):
        if number % 4 == 3:
            since = script.now
            script.evaluate(1, ends=False)
            script.tape.add(EventKind.EVALUATION, since, script.now - since)
        script.step()
    found = script.explain()
    assert roles(found) == {"Train#1": [("training", 1, 40)], "Valid#1": [("evaluation", 10, 10)]}
    assert seconds(found, Activity.EVALUATION) == pytest.approx(10 * 0.061)


def test_a_batch_that_is_fetched_before_train_is_called_is_trained_on() -> None:
    script = Script()
    for _ in range(20):
        since = script.now
        for _ in script.over(_TRAIN, 1, ends=False):
            script.tape.add(EventKind.EVALUATION, since - 0.01, script.now - since + 0.01)
            script.step()
    assert roles(script.explain()) == {"Train#1": [("training", 20, 20)]}


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("batches", [1, 2, 30])
def test_wrappers_that_are_a_batch_ahead(ahead: int, batches: int) -> None:
    script = Script()
    for _ in range(60 // batches):
        for _ in script.over(_TRAIN, batches, ahead=ahead):
            script.step()
        for _ in script.over(_VALID, batches, ahead=ahead):
            script.call()
    found = script.explain()
    passes = 60 // batches
    assert roles(found) == {"Train#1": [("training", passes, 60)], "Valid#1": [("evaluation", passes, 60)]}
    assert seconds(found, Activity.EVALUATION) == pytest.approx(60 * 0.06 + passes * 0.002)


def test_gradient_accumulation_and_two_loaders_of_one_step_train() -> None:
    script = Script()
    others = script.over(_THIRD, 40)
    for number in script.over(_TRAIN, 40):
        next(others)
        script.step(optimizer=number % 4 == 3)
        if number % 20 == 19:
            script.evaluate()
    found = script.explain()
    assert {name: said[0][0] for name, said in roles(found).items()} == {
        "Train#1": "training",
        "Third#1": "training",
        "Valid#1": "evaluation",
    }


def test_single_batches_of_a_validation_loader_made_for_each() -> None:
    script = Script()
    for number in script.over(_TRAIN, 40):
        script.step()
        if number % 5 == 4:
            script.evaluate(1, ends=False)
    found = script.explain()
    assert roles(found)["Valid#1"] == [("evaluation", 8, 8)]
    assert seconds(found, Activity.EVALUATION) == pytest.approx(8 * 0.061)


def test_one_loader_for_both_and_a_look_at_the_data() -> None:
    """Only its steps are judged as those of a training."""
    script = Script()
    for _ in script.over(_TRAIN, 30, wait_s=0.2):
        pass  # their mean
    for _ in script.over(_TRAIN, 30, wait_s=0.0001):
        script.step()
    script.evaluate(30, _TRAIN)
    found = script.explain()
    assert roles(found) == {"Train#1": [("training", 1, 30), ("evaluation", 1, 30), ("other", 1, 30)]}
    assert found.figures["steps"] == 29
    assert causes(found) == ["evaluation"]


def test_eval_that_nobody_takes_back_hides_no_training() -> None:
    script = Script()
    begun = script.now
    for _ in range(2):
        for _ in script.over(_TRAIN, 20):
            script.step()
        script.evaluate()
    script.tape.add(EventKind.EVALUATION, begun, script.now - begun)
    found = script.explain()
    assert seconds(found, Activity.EVALUATION) == pytest.approx(2 * 0.242)
    assert roles(found)["Train#1"] == [("training", 2, 40)]


def test_without_any_training_nothing_is_evaluation() -> None:
    script = Script()
    script.evaluate(40)
    found = script.explain()
    assert roles(found) == {"Valid#1": [("other", 1, 40)]}
    assert causes(found) == ["loader_throughput"]
    assert seconds(found, Activity.EVALUATION) == 0


def test_a_loader_made_anew_is_one_loader_that_was_made_so_often() -> None:
    script = Script()
    for _ in range(4):
        for _ in script.over(_TRAIN, 10, wait_s=0.0001):
            script.step()
        script.now += 0.2
    settings = LoaderSettings(by="torch", place="/home/u/project/train.py:31", num_workers=2)
    script.tape.loaders = {_TRAIN: settings}
    found = script.explain()
    (row,) = found.loaders
    assert (row.num_made, row.place, row.title) == (4, settings.place, "Train#1 (train.py:31)")
    assert found.as_json()["loaders"] == [
        {
            "name": "Train#1",
            "place": "/home/u/project/train.py:31",
            "role": "training",
            "num_made": 4,
            "passes": 4,
            "batches": 40,
            "wait_median_s": 0.0001,
            "wait_share": row.as_json()["wait_share"],
        }
    ]


# ------------------------------------------------------------------------------------------------- without a loader


def loop_without_a_loader(*, data_s: float, inside_s: float = 0.0, accumulates: int = 1) -> Script:
    """A loop that makes its batch between steps, and something inside of them."""
    script = Script()
    script.tape.loaders = {}
    for _ in range(40):
        for number in range(accumulates):
            script.now += data_s
            script.call(0.02)
            script.now += inside_s
            script.do(EventKind.BACKWARD, 0.03)
            if number == accumulates - 1:
                script.now += 0.001  # gradients are clipped
                script.do(EventKind.OPTIMIZER, 0.01)
    return script


@pytest.mark.parametrize("accumulates", [1, 4])
def test_without_a_loader_the_table_comes_all_the_same(accumulates: int) -> None:
    found = loop_without_a_loader(data_s=0.04, accumulates=accumulates).explain()
    assert found.verdict is Verdict.UNKNOWN
    assert seconds(found, Activity.BETWEEN_STEPS) == pytest.approx((40 * accumulates - 1) * 0.04)
    assert seconds(found, Activity.BACKWARD) == pytest.approx(40 * accumulates * 0.03)
    assert found.facts[0].en.startswith("40 optimizer steps; ")
    assert "data made by the loop itself, or other Python" in found.facts[0].en
    assert "循环自己在准备数据" in found.facts[0].zh
    assert "no DataLoader" in found.limits[0].en
    assert 'headrace.phase("data")' in found.measure[0].en
    assert "headrace.monitor" in found.measure[0].en


def test_without_a_loader_a_loop_that_computes_is_compute_bound() -> None:
    found = loop_without_a_loader(data_s=0.0005).explain()
    assert (found.verdict, found.findings, found.measure) == (Verdict.COMPUTE_BOUND, (), ())


def test_data_made_inside_the_step_or_named_as_a_phase() -> None:
    script = loop_without_a_loader(data_s=0.0, inside_s=0.04)
    found = script.explain()
    assert found.verdict is Verdict.UNKNOWN
    assert seconds(found, Activity.OTHER) >= 40 * 0.04
    named = loop_without_a_loader(data_s=0.04)
    named.tape.names[9] = "data"
    for row in [one for one in named.tape.rows if one[4] is EventKind.FORWARD]:
        named.tape.add(EventKind.PHASE, row[0] - 0.04, 0.04, 0, 9)
    found = named.explain()
    assert seconds(found, Activity.PHASE) == pytest.approx(39 * 0.04, rel=0.03)
    assert seconds(found, Activity.BETWEEN_STEPS) < 0.01


def test_an_evaluation_by_a_loader_beside_a_loop_without_one() -> None:
    script = loop_without_a_loader(data_s=0.04)
    script.tape.loaders = {_VALID: IN_PROCESS}
    script.evaluate(20)
    found = script.explain()
    assert roles(found) == {"Valid#1": [("evaluation", 1, 20)]}
    assert seconds(found, Activity.BETWEEN_STEPS) == pytest.approx(39 * 0.04)
    assert "no DataLoader was asked for a batch to train on" in found.limits[0].en


def test_a_thread_that_asks_for_batches_leaves_the_wait_between_steps() -> None:
    script = loop_without_a_loader(data_s=0.04)
    process = script.tape.process()
    asked = process.of(EventKind.FORWARD).copy()
    asked["kind"], asked["thread"], asked["arg"], asked["value"] = int(EventKind.WAIT), 1, _TRAIN, np.arange(len(asked))
    events = np.sort(np.concatenate([process.events, asked]), order="start_ns")
    process = type(process)(process.pid, process.parent_pid, process.role, events, process.names)
    found = explain([process], script.now)
    assert seconds(found, Activity.BETWEEN_STEPS) == pytest.approx(39 * 0.04)
    assert "another thread" in found.limits[0].en
    assert found.loaders == ()


@pytest.mark.parametrize("asking", [0.0, 0.9])
def test_the_time_between_steps_is_told_first_with_what_a_prefetching_thread_did(asking: float) -> None:
    script = loop_without_a_loader(data_s=0.12)
    process = script.tape.process()
    if asking:
        asked = process.of(EventKind.FORWARD).copy()
        asked["kind"], asked["thread"], asked["arg"] = int(EventKind.WAIT), 1, _TRAIN
        asked["value"], asked["duration_ns"] = np.arange(len(asked)), round(asking * 0.12e9)
        asked["start_ns"] -= round(0.12e9)
        events = np.sort(np.concatenate([process.events, asked]), order="start_ns")
        process = type(process)(process.pid, process.parent_pid, process.role, events, process.names)
    found = explain([process], script.now)
    assert found.verdict is Verdict.UNKNOWN
    (finding,) = found.findings
    assert finding.confidence is Confidence.POSSIBLE
    assert finding.share == pytest.approx(0.12 / 0.181, rel=0.05)
    assert 'headrace.phase("data")' in finding.measure[0].en
    said = " ".join(text.en for text in finding.evidence)
    assert ("for 90 % of that time the thread that prefetches waited for the loader itself" in said) == bool(asking)
    first = next(iter(contents.opening_of(found, "en")))
    assert "(66 %) went into code between steps" in first


@pytest.mark.parametrize(("before_s", "after_s"), [(0.12, 0.0), (0.0, 0.12), (0.01, 0.0)])
def test_own_code_between_a_batch_and_the_forward_pass_is_noted_where_it_is_much(
    before_s: float, after_s: float
) -> None:
    script = Script()
    for _ in script.over(_TRAIN, 40, wait_s=0.0001):
        script.now += before_s
        script.step()
        script.now += after_s  # metrics, say: whose they are, nobody asks
    found = script.explain()
    assert (found.verdict, found.findings) == (Verdict.COMPUTE_BOUND, ())
    noted = [text.en for text in found.notes if "headrace.phase" in text.en]
    assert len(noted) == (before_s == 0.12)
    assert all("own code takes 75 % of the time, typically 120 ms a step" in text for text in noted)


def test_own_code_that_the_script_names_or_whose_steps_are_not_seen_is_not_noted() -> None:
    named, blind = Script(), Script()
    named.tape.names[9] = "mixing"
    for _ in named.over(_TRAIN, 40, wait_s=0.0001):
        named.do(EventKind.PHASE, 0.12, 0, 9)
        named.step()
    for _ in blind.over(_TRAIN, 40, wait_s=0.0001):
        blind.now += 0.12
        blind.call()
    assert not any("headrace.phase" in text.en for one in (named, blind) for text in one.explain().notes)


def test_every_role_has_a_row() -> None:
    rows = [
        LoaderRow(name="A#1", place="", role=role, num_made=1, passes=1, batches=1, wait_median_s=0.0, wait_share=0.0)
        for role in LoaderRole
    ]
    assert [row.as_json()["role"] for row in rows] == ["training", "evaluation", "other"]


def test_a_recording_that_lacks_the_beginnings_of_passes() -> None:
    script = Script()
    for _ in range(3):
        for _ in script.over(_TRAIN, 20):
            script.step()
        script.evaluate(8)
    rows = script.tape.rows
    script.tape.rows = [row for row in rows if row[4] is not EventKind.WAIT or row[2] not in (-1, 0, 1)]
    found = script.explain()
    assert roles(found) == {"Train#1": [("training", 3, 54)], "Valid#1": [("evaluation", 3, 18)]}
