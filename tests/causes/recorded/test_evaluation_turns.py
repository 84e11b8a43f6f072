"""Where an evaluation ends and training goes on, whatever a script or framework does in between."""

import pytest

from headrace.model import EventKind

from .test_recorded import IN_PROCESS, Tape, causes, explain

_TRAIN, _VALID = 1, 2


def run(*, train_is_called: str, save_s: float) -> Tape:
    """Play a training that evaluates and saves every ten steps, and calls `train()` at once or with its next step."""
    loaders = {_TRAIN: IN_PROCESS, _VALID: IN_PROCESS}
    tape = Tape(100, "trainer", names={_TRAIN: "Train#1", _VALID: "Valid#1"}, loaders=loaders)
    now = 1.0
    tape.add(EventKind.EPOCH, now, 0.001, 0, _TRAIN)
    for step in range(50):
        evaluated_at = None
        if step and step % 10 == 0:
            evaluated_at = now
            tape.add(EventKind.EPOCH, now, 0.01, step, _VALID)
            now += 0.01
            for batch in range(4):
                tape.add(EventKind.WAIT, now, 0.05, batch, _VALID)
                tape.add(EventKind.FORWARD, now + 0.05, 0.05)
                now += 0.1
            tape.add(EventKind.WAIT, now, 0.001, -1, _VALID)
            now += 0.01  # metrics
            if train_is_called == "at once":
                tape.add(EventKind.EVALUATION, evaluated_at, now - evaluated_at)
            tape.add(EventKind.CHECKPOINT, now, save_s)
            now += save_s
        tape.add(EventKind.WAIT, now, 0.02, step, _TRAIN)
        now += 0.02
        if evaluated_at is not None and train_is_called == "in the step":
            tape.add(EventKind.EVALUATION, evaluated_at, now - evaluated_at)
        tape.add(EventKind.FORWARD, now, 0.02)
        tape.add(EventKind.BACKWARD, now + 0.02, 0.03)
        now += 0.06
    tape.add(EventKind.WAIT, now, 0.001, -1, _TRAIN)
    return tape


@pytest.mark.parametrize("train_is_called", ["at once", "in the step"])
def test_saves_and_waits_after_an_evaluation_are_not_evaluation(train_is_called: str) -> None:
    tape = run(train_is_called=train_is_called, save_s=0.5)
    end_s = max(row[0] + row[1] for row in tape.rows)
    found = explain([tape.process()], end_s)
    rows = {row.activity.value: row for row in found.times}
    assert rows["checkpoint"].seconds == pytest.approx(4 * 0.5, rel=0.01)
    assert rows["evaluation"].seconds == pytest.approx(4 * 0.42, rel=0.01)
    assert rows["wait"].seconds == pytest.approx(49 * 0.02, rel=0.01)
    assert {"checkpoint", "evaluation"} <= set(causes(found))
    (evaluation,) = [one for one in found.findings if one.cause.value == "evaluation"]
    assert evaluation.figures["typical_s"] == pytest.approx(0.42, rel=0.01)
    assert evaluation.figures["count"] == 4
    assert found.figures["steps"] == 49


def test_saves_inside_an_evaluation_are_saves() -> None:
    tape = run(train_is_called="at once", save_s=0.5)
    tape.rows = [row for row in tape.rows if row[4] is not EventKind.EVALUATION]
    for start_s, length_s, *_ in [row for row in tape.rows if row[4] is EventKind.CHECKPOINT]:
        tape.add(EventKind.EVALUATION, start_s - 0.42, 0.42 + length_s)  # a framework's: it saves before it is done
        tape.add(EventKind.CHECKPOINT, start_s + 0.1, 0.2)  # and a save in a save is one
    end_s = max(row[0] + row[1] for row in tape.rows)
    found = explain([tape.process()], end_s)
    rows = {row.activity.value: row for row in found.times}
    assert rows["checkpoint"].seconds == pytest.approx(4 * 0.5, rel=0.01)
    assert rows["evaluation"].seconds == pytest.approx(4 * 0.42, rel=0.01)
    (saved,) = [one for one in found.findings if one.cause.value == "checkpoint"]
    assert saved.figures["count"] == 4
    assert saved.figures["typical_s"] == pytest.approx(0.5)


def test_an_evaluation_with_which_a_script_ends_is_over_with_the_last_thing_it_did() -> None:
    tape = run(train_is_called="at once", save_s=0.1)
    now = max(row[0] + row[1] for row in tape.rows)
    for batch in range(4):
        tape.add(EventKind.WAIT, now + 0.2 * batch, 0.1, batch, _VALID)
        tape.add(EventKind.FORWARD, now + 0.2 * batch + 0.1, 0.1)
    found = explain([tape.process()], now + 4.0)
    rows = {row.activity.value: row for row in found.times}
    assert rows["evaluation"].seconds == pytest.approx(4 * 0.42 + 0.8, rel=0.01)
    assert rows["ending"].seconds == pytest.approx(3.2, rel=0.01)


def test_one_evaluation_is_told_in_the_singular() -> None:
    tape = run(train_is_called="at once", save_s=0.01)
    tape.rows = [row for row in tape.rows if row[4] is not EventKind.EVALUATION and row[3] != _VALID]
    now = max(row[0] + row[1] for row in tape.rows)
    tape.add(EventKind.EVALUATION, now, 9.0)
    found = explain([tape.process()], now + 9.0)
    said = [text.en for one in found.findings if one.cause.value == "evaluation" for text in one.evidence]
    assert said[0].startswith("1 evaluation (from `eval()` to `train()`) took")
