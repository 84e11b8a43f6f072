"""What the judgement says of results that are hard to bring about: facts in, checks out."""

from typing import Any

from headrace.doctor import Check
from headrace.doctor.checks import Outcome
from headrace.doctor.target import Judge, StageResult
from headrace.doctor.target.stages import StageEnding
from headrace.model import Text

IMPORTED = {"kind": "indexed", "length": 48, "dataset": "Plain", "import_s": 0.1, "starts": [], "start_method": "fork"}
IMPORTED |= {"num_workers": 2, "prefetch_factor": None, "stated": None, "is_default": True, "shm_free_bytes": None}
GOOD = {"bad": [], "overwritten": [], "num_good": 48, "times": [0.1], "sample_bytes": 8, "has_ended": False}
BATCHES = {"times": [0.1], "batch_bytes": 64}


def done(**facts: Any) -> StageResult:
    return StageResult(ending=StageEnding.DONE, seconds=1.0, facts=facts)


def judged(**workers: StageResult) -> dict[str, Check]:
    results = {"import": done(**IMPORTED), "sample": done(**GOOD), "loader": done(**BATCHES)}
    return {check.name: check for check in Judge("data.py:data", results | workers).checks()}


def fixes(check: Check) -> str:
    assert check.finding is not None
    return "\n".join(text.en for text in check.finding.fix)


def test_spawn_is_advised_after_a_deadlock_only_where_it_works() -> None:
    hung = StageResult(ending=StageEnding.HUNG, seconds=9.0, hang=Text("waits", "等待"), is_deadlock=True)
    error = {
        "name": "TypeError",
        "said": "TypeError: cannot pickle",
        "traceback": "TypeError: cannot pickle 'X' object",
    }
    fails = StageResult(
        ending=StageEnding.FAILED, seconds=1.0, facts={"error": error, "unpicklable": ["dataset.lock", "TypeError"]}
    )
    works = done(times=[0.1], batch_bytes=64)
    either = judged(workers_fork=hung, workers_spawn=works)["workers_fork"]
    assert either.problem == "fork_deadlock"
    assert fixes(either).startswith("start workers anew: multiprocessing_context='spawn'")
    neither = judged(workers_fork=hung, workers_spawn=fails)["workers_fork"]
    assert neither.problem == "fork_deadlock"
    assert fixes(neither).startswith("start no threads before the workers")
    assert "fail as well" in fixes(neither)


def test_what_ends_another_loader_than_torchs_is_not_laid_to_the_data_set() -> None:
    found = {"workers_fork": done(**BATCHES, cuda="", handles=[], kept=[], moved=[], copied=[], by_worker=[[1], [2]])}
    for what, outcome in (("headrace", Outcome.SKIP), ("in_process", Outcome.SKIP), ("torch", Outcome.FAIL)):
        died = StageResult(
            ending=StageEnding.DIED, seconds=3.0, in_hand={"what": what}, death=Text("was killed", "被杀死")
        )
        assert judged(**found, benchmark=died)["benchmark"].outcome is outcome


def test_a_sample_that_fails_beside_a_slow_worker_init_fn_is_told_as_that() -> None:
    error = {"name": "KeyError", "said": "KeyError: 7", "traceback": "in __getitem__\nKeyError: 7"}
    failed = StageResult(
        ending=StageEnding.FAILED, seconds=1.0, facts={"error": error}, in_hand={"samples": ["7", "worker_init_fn"]}
    )
    assert judged(workers_fork=failed)["workers_fork"].problem == "sample_fails"


def test_a_key_that_is_missing_is_not_told_as_different_shapes() -> None:
    whole = [["x", "Tensor", [4], "float32", 16], ["mask", "Tensor", [4], "bool", 4]]
    lacking = whole[:1]
    error = {"name": "KeyError", "said": "KeyError: 'mask'", "traceback": "KeyError: 'mask'"}
    samples = [{"sample": 0, "form": whole}, {"sample": 17, "form": lacking}]
    told = {"error": error, "in_collate": True, "samples": samples}
    failed = StageResult(ending=StageEnding.FAILED, seconds=1.0, facts=told)
    results = {"import": done(**IMPORTED), "sample": done(**GOOD), "loader": failed}
    check = {check.name: check for check in Judge("data.py:data", results).checks()}["loader"]
    assert (check.problem, check.says.en) == ("collate_fails", "collating samples fails: KeyError: 'mask'")
