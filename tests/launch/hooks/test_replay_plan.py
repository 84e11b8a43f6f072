"""When batches are kept and given again: the loader gets all of its own `next`s back, and ranks stay in step."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.launch.hooks.replay import NextBatch, ReplayPlan


def play(plan: ReplayPlan, nexts: list[tuple[str, int, bool]]) -> list[NextBatch]:
    """Ask for batches in a row; each real one that is wanted is kept."""
    answers = []
    for loader, iterator, has_trained in nexts:
        answer = plan.asks(loader, iterator, has_trained=has_trained)
        answers.append(answer)
        if answer is not NextBatch.CACHED and plan.is_wanted(loader):
            plan.kept(loader)
    return answers


@given(steps=st.integers(1, 50), warm_up=st.integers(1, 10), kept=st.integers(1, 10), after=st.integers(1, 30))
def test_a_training_loop_is_replayed_once_after_warming_up(steps: int, warm_up: int, kept: int, after: int) -> None:
    plan = ReplayPlan(steps, warm_up=warm_up, num_kept=kept)
    total = 1 + warm_up + kept + steps + after
    answers = play(plan, [("train", 0, number > 0) for number in range(total)])
    first = warm_up + kept  # so many steps have been made when this one is asked for
    assert answers[:first] == [NextBatch.REAL] * first
    assert answers[first : first + steps] == [NextBatch.CACHED] * steps
    assert answers[first + steps] is NextBatch.REAL_AGAIN
    assert set(answers[first + steps + 1 :]) <= {NextBatch.REAL}
    assert plan.served == steps


@given(
    nexts=st.lists(st.tuples(st.sampled_from(["train", "other", "eval"]), st.integers(0, 2), st.booleans())),
    steps=st.integers(1, 10),
)
def test_whatever_is_asked_no_more_is_given_than_was_asked_for(nexts: list[tuple[str, int, bool]], steps: int) -> None:
    plan = ReplayPlan(steps, warm_up=1, num_kept=2)
    answers = play(plan, nexts)
    lead = [answer for answer, (loader, _, _) in zip(answers, nexts, strict=True) if loader == plan.lead]
    assert lead.count(NextBatch.CACHED) == plan.served <= steps
    assert answers.count(NextBatch.REAL_AGAIN) <= 1
    if NextBatch.REAL_AGAIN in answers:
        assert set(answers[answers.index(NextBatch.REAL_AGAIN) + 1 :]) <= {NextBatch.REAL}


def test_an_evaluation_is_never_replayed() -> None:
    plan = ReplayPlan(5, warm_up=2, num_kept=2)
    nexts = []
    for number in range(40):
        nexts.append(("train", 0, number > 0))
        nexts += [("eval", number, False)] * 3
    answers = play(plan, nexts)
    for answer, (loader, _, _) in zip(answers, nexts, strict=True):
        assert loader == "train" or answer is NextBatch.REAL
    assert plan.served == 5


def test_two_loaders_of_one_loop_are_replayed_together() -> None:
    plan = ReplayPlan(5, warm_up=2, num_kept=2)
    nexts = [(loader, 0, number > 0) for number in range(20) for loader in ("a", "b")]
    answers = play(plan, nexts)
    assert plan.lead == "a"
    cached = [place for place, answer in enumerate(answers) if answer is NextBatch.CACHED]
    assert cached == list(range(cached[0], cached[0] + 10))


def test_a_loop_that_is_left_ends_the_replay() -> None:
    plan = ReplayPlan(100, warm_up=2, num_kept=2)
    play(plan, [("train", 0, number > 0) for number in range(10)])
    assert plan.served == 6
    assert play(plan, [("train", 1, False), ("train", 1, True)]) == [NextBatch.REAL_AGAIN, NextBatch.REAL]


def test_after_giving_up_everything_is_real() -> None:
    plan = ReplayPlan(5, warm_up=1, num_kept=1)
    plan.is_over = True
    assert set(play(plan, [("train", 0, True)] * 20)) == {NextBatch.REAL}
