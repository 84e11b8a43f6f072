"""What a loader with `tune="online"` changed of itself is told, in both languages."""

from headrace.causes.recorded import explain_processes
from headrace.model import Adjustment, AdjustmentReason, EventKind, Lever

from .test_recorded import Tape, explain, simulate


def test_adjustments_are_told_with_their_reasons() -> None:
    told = Adjustment(lever=Lever.WORKERS, before=1, after=2, reason=AdjustmentReason.WAITS, wait_share=0.75)
    value, name = told.as_event()
    trainer = Tape(100, "trainer", names={1: "Samples#1", 2: name, 3: "SAILS LATER"})
    trainer.add(EventKind.EPOCH, 1.0, 0.1, 0, 1)
    for number in range(20):
        trainer.add(EventKind.WAIT, 1.1 + number, 0.75, number, 1)
    trainer.add(EventKind.TUNED, 5.0, 0.0, value, 2)
    trainer.add(EventKind.TUNED, 6.0, 0.0, value, 3)  # of a later version
    found = explain_processes([trainer.process()], start_ns=0, end_ns=round(22e9), cores=2)
    said = [fact for fact in found.facts if 'tune="online"' in fact.en]
    assert len(said) == 1
    assert "workers 1 → 2: the loop waits 75 % of its time, and the machine has room" in said[0].en
    assert "worker 数 1 → 2" in said[0].zh


def test_a_loader_that_tunes_itself_is_advised_no_workers() -> None:
    found = {
        tunes: explain(
            *simulate(workers=2, task_s=[0.4] * 80, step_s=0.05, cpu=0.05, by="headrace", tunes_itself=tunes), cores=64
        ).findings[0]
        for tunes in (False, True)
    }
    assert "more_workers" in found[False].figures
    assert "more_workers" not in found[True].figures
    assert found[True].change is None
    fixes = " ".join(text.en for text in found[True].fix)
    assert "num_workers=" not in fixes
    assert "more of them" not in fixes
    assert 'how many workers, `tune="online"` finds out' in fixes
