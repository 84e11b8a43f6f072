"""What `--feed` did to each loader, from what was written down: whose waits are whose, and the reason in words."""

from headrace.causes.recorded.feeding import feed_headline, feed_notes, feed_rows
from headrace.model import EventKind, FeedNote, FeedReason, LoaderSettings

from .test_recorded import Tape


class Run(Tape):
    """A training process that takes batches, one step after the other."""

    now_s = 1.0

    def feed(self, loader: int, note: FeedNote) -> None:
        number = self.names_of(note.as_text())
        self.add(EventKind.FEED, self.now_s, 0.0, loader, number)
        self.now_s += 1e-4

    def names_of(self, text: str) -> int:
        number = 500 + len(self.names)
        self.names[number] = text
        return number

    def steps(self, loader: int, waits_s: list[float], *, step_s: float = 0.01, first: int = 0) -> None:
        for batch, wait_s in enumerate(waits_s, start=first):
            self.add(EventKind.WAIT, self.now_s, wait_s, batch, loader)
            self.now_s += wait_s + step_s


def new_run() -> Run:
    settings = LoaderSettings(by="torch", place="/home/me/train.py:7", num_workers=2)
    return Run(100, "trainer", names={1: "Photos#1", 2: "Val#1"}, loaders={1: settings})


OURS, TORCHS = FeedNote(by="headrace", reason=FeedReason.FED), FeedNote(reason=FeedReason.MEASURED)


def test_waits_of_both_are_told_apart() -> None:
    run = new_run()
    run.feed(1, TORCHS)
    run.steps(1, [0.5, *[0.03] * 10])
    run.feed(1, OURS)
    run.steps(1, [0.4, *[0.01] * 7], first=11)
    run.feed(1, OURS)
    run.steps(1, [0.7, *[0.01] * 5])  # the next pass
    (row,) = feed_rows(run.process())
    assert (row.by, row.reason, row.place) == ("headrace", FeedReason.FED, "/home/me/train.py:7")
    assert (row.torch_batches, row.ours_batches) == (11, 14)
    figures = (row.torch_wait_median_s, row.torch_wait_worst_s, row.torch_wait_share, row.torch_step_s)
    assert [round(value or 0, 4) for value in figures] == [0.03, 0.03, 0.75, 0.04]
    figures = (row.ours_wait_median_s, row.ours_wait_worst_s, row.ours_wait_share, row.ours_step_s)
    assert [round(value or 0, 4) for value in figures] == [0.01, 0.01, 0.5, 0.02]
    (note,) = feed_notes([row])
    assert note.en == (
        "fed by Headrace: Photos#1 (train.py:7): 14 batches, waits 10.0 ms typically, 10.0 ms at worst, 50 % of the "
        "time; 20.0 ms a step; before, with torch's workers: 11 batches, waits 30.0 ms typically, 30.0 ms at worst, "
        "75 % of the time; 40.0 ms a step"
    )
    assert "此前用 torch 的 worker" in note.zh
    headline = feed_headline([row])
    assert headline is not None
    assert "with torch's loader the training waited for data for 75 % of its time, with ours for 50 %" in headline.en
    assert "75 % 的时间在等数据" in headline.zh


def test_those_that_stay_are_told_by_their_reason() -> None:
    run = new_run()
    for loader in (1, 2):
        run.feed(loader, FeedNote(reason=FeedReason.IN_PROCESS))
        run.steps(loader, [0.1] * 3)
    rows = feed_rows(run.process())
    assert [row.torch_batches for row in rows] == [3, 3]
    assert feed_headline(rows) is None
    (note,) = feed_notes(rows)
    assert note.en.startswith("torch's own loader: Photos#1 (train.py:7), Val#1: num_workers=0")


def test_a_failure_of_ours_and_a_late_draw_are_told() -> None:
    run = new_run()
    run.feed(1, OURS)
    run.steps(1, [0.1] * 5)
    run.feed(1, FeedNote(by="headrace", reason=FeedReason.DREW))
    run.feed(2, OURS)
    run.steps(2, [0.1] * 5)
    run.feed(2, FeedNote(reason=FeedReason.FAILED, detail="BatchTooLarge: 3 GiB"))
    run.steps(2, [0.1] * 5, first=5)
    run.steps(1, [0.1], first=5)
    first, drew, stays, second = feed_notes(feed_rows(run.process()))
    assert first.en.startswith("fed by Headrace: Photos#1 (train.py:7): 6 batches")
    assert drew.en.startswith("Photos#1 (train.py:7) drew random numbers after all")
    assert second.en.startswith("fed by Headrace: Val#1")
    assert stays.en == "torch's own loader: Val#1: feeding it failed: BatchTooLarge: 3 GiB"


def test_every_reason_has_its_sentence_and_without_feed_nothing_is_told() -> None:
    run = new_run()
    run.steps(1, [0.1] * 3)
    assert feed_rows(run.process()) == ()
    for reason in {*FeedReason} - {FeedReason.FED, FeedReason.DREW}:
        run = new_run()
        run.feed(1, FeedNote(reason=reason, detail="Own"))
        (note,) = feed_notes(feed_rows(run.process()))
        assert "{" not in note.en + note.zh
