"""Stacks recorded of real trainings are read as what those trainings do; of our own loader in `test_watch_own`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.signals import Frame, ThreadStack
from headrace.watch.processes import Role, assign_roles, crews_of
from headrace.watch.reading import (
    Detail,
    TrainerActivity,
    WorkerActivity,
    own_frames,
    read_trainer,
    read_worker,
    training_thread,
    worker_threads,
)

from .stored import RecordedRun, recorded, scenarios

TRAINERS = {
    "fork": (TrainerActivity.DATA_WAIT, Detail.NONE),
    "spawn": (TrainerActivity.DATA_WAIT, Detail.NONE),
    "forkserver": (TrainerActivity.DATA_WAIT, Detail.NONE),
    "in_process": (TrainerActivity.DATA_WAIT, Detail.IN_PROCESS),
    "reading": (TrainerActivity.DATA_WAIT, Detail.NONE),
    "collating": (TrainerActivity.DATA_WAIT, Detail.NONE),
    "sleep": (TrainerActivity.DATA_WAIT, Detail.NONE),
    "compute": (TrainerActivity.COMPUTE, Detail.NONE),
    "checkpoint": (TrainerActivity.CHECKPOINT, Detail.NONE),
    "evaluation": (TrainerActivity.EVALUATION, Detail.NONE),
    "evaluation_waits": (TrainerActivity.EVALUATION, Detail.WAITING_FOR_DATA),
    "logs": (TrainerActivity.LOGGING, Detail.NONE),
    "garbage": (TrainerActivity.GC, Detail.NONE),
    "own_loader": (TrainerActivity.DATA_WAIT, Detail.NONE),
    "in_a_thread": (TrainerActivity.DATA_WAIT, Detail.NONE),
    "spawned_ranks": (TrainerActivity.COMPUTE, Detail.NONE),
    "torchrun": (TrainerActivity.DATA_WAIT, Detail.NONE),
}
WORKERS = {
    "fork": WorkerActivity.DECODING,
    "spawn": WorkerActivity.DECODING,
    "forkserver": WorkerActivity.DECODING,
    "reading": WorkerActivity.READING,
    "collating": WorkerActivity.COLLATING,
    "compute": WorkerActivity.IDLE,
    "torchrun": WorkerActivity.DECODING,
}
NUM_TRAINERS = {"spawned_ranks": 2, "torchrun": 2}
NUM_WORKERS = {
    "in_process": 0,
    "checkpoint": 0,
    "logs": 0,
    "garbage": 0,
    "own_loader": 0,
    "spawned_ranks": 0,
    "torchrun": 4,
}


def roles_of(run: RecordedRun) -> dict[int, Role]:
    return assign_roles(run.facts, run.last_stacks)


def pids(run: RecordedRun, role: Role) -> list[int]:
    return [pid for pid, one in roles_of(run).items() if one is role]


def test_every_recorded_training_is_labelled() -> None:
    assert set(TRAINERS) == set(scenarios())


@pytest.mark.parametrize("scenario", sorted(TRAINERS))
def test_what_the_trainer_does(scenario: str) -> None:
    run = recorded(scenario)
    expected = TRAINERS[scenario]
    trainers = pids(run, Role.TRAINER)
    assert len(trainers) == NUM_TRAINERS.get(scenario, 1)
    for pid in trainers:
        seen: Counter[tuple[TrainerActivity, Detail]] = Counter()
        for look in run.process(pid).looks:
            thread = training_thread(look, run.source_line)
            assert thread is not None
            reading = read_trainer(thread.frames, run.source_line)
            seen[reading.activity, reading.detail] += 1
        assert seen.most_common(1)[0][0] == expected, seen
        assert seen[expected] >= 0.7 * seen.total(), seen


@pytest.mark.parametrize("scenario", sorted(WORKERS))
def test_what_the_workers_do(scenario: str) -> None:
    run = recorded(scenario)
    workers = pids(run, Role.WORKER)
    assert len(workers) == NUM_WORKERS.get(scenario, 2)
    seen: Counter[WorkerActivity] = Counter()
    for pid in workers:
        for look in run.process(pid).looks:
            seen.update(read_worker(thread.frames, run.source_line).activity for thread in worker_threads(look))
    assert seen[WORKERS[scenario]] >= 0.7 * seen.total(), seen
    assert seen.total() > 10


@pytest.mark.parametrize("scenario", sorted(TRAINERS))
def test_who_is_who(scenario: str) -> None:
    run = recorded(scenario)
    roles = roles_of(run)
    workers = pids(run, Role.WORKER)
    assert len(workers) == NUM_WORKERS.get(scenario, 2), [
        (p.facts.pid, p.facts.name, roles[p.facts.pid]) for p in run.processes
    ]
    crews = crews_of(run.facts, roles)
    assert set(crews) == set(pids(run, Role.TRAINER))
    assert sorted(one.pid for crew in crews.values() for one in crew) == sorted(workers)


def test_ranks_are_named_and_the_launcher_is_none() -> None:
    run = recorded("torchrun")
    roles = roles_of(run)
    assert sorted(p.facts.rank for p in run.processes if roles[p.facts.pid] is Role.TRAINER) == [0, 1]  # type: ignore[type-var]
    assert pids(run, Role.LAUNCHER) == [run.processes[0].facts.pid]
    ranks = recorded("spawned_ranks")
    assert pids(ranks, Role.LAUNCHER) == [ranks.processes[0].facts.pid]


@pytest.mark.parametrize("scenario", ["fork", "forkserver", "spawn", "torchrun"])
def test_without_stacks_names_and_forks_tell(scenario: str) -> None:
    """Where stacks are not allowed, and for torch before 2.6 that names no worker."""
    run = recorded(scenario)
    with_stacks = roles_of(run)
    assert assign_roles(run.facts, {}) == with_stacks
    unnamed = [replace(facts, name="python", thread_names=("python",)) for facts in run.facts]
    if scenario != "torchrun":  # its launcher is known by its command, too
        assert assign_roles(unnamed, {}) == with_stacks


def test_a_forked_worker_is_not_taken_for_the_loop_it_was_forked_from() -> None:
    run = recorded("evaluation_waits")
    for pid in pids(run, Role.WORKER):
        for look in run.process(pid).looks:
            (thread,) = worker_threads(look)
            assert any("validate_one_epoch" in frame.function for frame in thread.frames)
            assert not any("validate_one_epoch" in frame.function for frame in own_frames(thread.frames))


def test_older_pythons_tell_bare_names() -> None:
    """Before 3.11 a frame is `__next__`, not `_BaseDataLoaderIter.__next__`."""
    for scenario in ("fork", "checkpoint", "evaluation", "compute", "logs"):
        run = recorded(scenario)
        (pid,) = pids(run, Role.TRAINER)
        for look in run.process(pid).looks:
            thread = training_thread(look, run.source_line)
            assert thread is not None
            bare = [replace(frame, function=frame.function.rpartition(".")[2]) for frame in thread.frames]
            short = read_trainer(bare, run.source_line)
            assert short.activity is read_trainer(thread.frames, run.source_line).activity


def test_without_source_files_only_what_lines_tell_is_lost() -> None:
    run = recorded("garbage")
    (pid,) = pids(run, Role.TRAINER)
    (thread,) = [t for t in run.process(pid).looks[-1] if t.is_main]
    assert read_trainer(thread.frames).activity is TrainerActivity.COMPUTE


@pytest.mark.parametrize(
    ("line", "activity"),
    [
        ("total += loss.item()", TrainerActivity.SYNCHRONISATION),
        ("torch.cuda.synchronize()", TrainerActivity.SYNCHRONISATION),
        ("x = x.to(device, non_blocking=True)", TrainerActivity.H2D_COPY),
        ("x = batch['image'].cuda()", TrainerActivity.H2D_COPY),
        ("x = x.to(torch.float32)", TrainerActivity.COMPUTE),
        ("print(f'step {i}')", TrainerActivity.LOGGING),
        ("gc.collect()", TrainerActivity.GC),
        ("time.sleep(5)", TrainerActivity.OTHER),
        ("y = x @ w", TrainerActivity.COMPUTE),
        ("", TrainerActivity.COMPUTE),
    ],
)
def test_a_line_tells_what_has_no_frame(line: str, activity: TrainerActivity) -> None:
    frames = [
        Frame(file="/job/train.py", line=3, function="step"),
        Frame(file="/job/train.py", line=9, function="main"),
    ]
    assert read_trainer(frames, lambda _: line).activity is activity


@pytest.mark.parametrize(
    ("name", "is_evaluation"),
    [
        *((name, True) for name in ("evaluate", "validate", "val_epoch", "_run_validation", "run_eval", "test")),
        *((name, True) for name in ("Trainer.evaluation_loop", "validate_one_epoch", "eval_model", "validation_step")),
        *(
            (name, False)
            for name in (
                "evaluate_loss_fn_gradient",
                "train",
                "retrieval",
                "testing_ground",
                "value",
                "eval_",
                "test_run",
            )
        ),
    ],
)
def test_evaluation_is_known_by_the_function(name: str, is_evaluation: bool) -> None:
    frames = [Frame(file="/job/model.py", line=3, function="forward"), Frame(file="/job/t.py", line=9, function=name)]
    assert (read_trainer(frames).activity is TrainerActivity.EVALUATION) is is_evaluation
    in_torch = [Frame(file="/env/site-packages/torch/nn/modules/module.py", line=1, function="Module.eval")]
    assert read_trainer(in_torch).activity is TrainerActivity.COMPUTE


def test_a_backward_pass_below_any_name_is_training_and_a_sleep_in_a_module_the_step() -> None:
    torch, own = "/env/site-packages/torch", Frame(file="/job/t.py", line=9, function="validate")
    backward = read_trainer([Frame(file=f"{torch}/_tensor.py", line=1, function="Tensor.backward"), own])
    assert (backward.activity, backward.detail) == (TrainerActivity.COMPUTE, Detail.TRAINING)
    sleeps = Frame(file="/job/model.py", line=3, function="forward")
    module = Frame(file=f"{torch}/nn/modules/module.py", line=1, function="Module._call_impl")
    activities = [read_trainer(frames, lambda _: "time.sleep(1)").activity for frames in ([sleeps], [sleeps, module])]
    assert activities == [TrainerActivity.OTHER, TrainerActivity.COMPUTE]


def test_a_loop_behind_a_pinning_thread_waits_for_data() -> None:
    """With `pin_memory=True` the loop reads a queue that a thread of torch fills: frames as torch has them."""
    torch, base = "/env/site-packages/torch/utils/data", "/base/lib/python3.11"
    main = ThreadStack(
        name="MainThread",
        tid=1,
        is_main=True,
        frames=(
            Frame(file=f"{base}/threading.py", line=331, function="Condition.wait"),
            Frame(file=f"{base}/queue.py", line=180, function="Queue.get"),
            Frame(file=f"{torch}/dataloader.py", line=1251, function="_MultiProcessingDataLoaderIter._try_get_data"),
            Frame(file=f"{torch}/dataloader.py", line=708, function="_BaseDataLoaderIter.__next__"),
            Frame(file="/job/t.py", line=9, function="main"),
        ),
    )
    pin = ThreadStack(
        name="Thread-3 (_pin_memory_loop)",
        tid=2,
        is_main=False,
        frames=(
            Frame(file=f"{base}/multiprocessing/connection.py", line=947, function="wait"),
            Frame(file=f"{torch}/_utils/pin_memory.py", line=50, function="_pin_memory_loop"),
        ),
    )
    assert training_thread((pin, main)) is main
    assert read_trainer(main.frames).activity is TrainerActivity.DATA_WAIT
    joins = Frame(file=f"{base}/threading.py", line=1, function="Thread.join")
    idle = replace(main, frames=(joins, main.frames[-1]))
    assert training_thread((idle, pin)) is idle


def test_saving_during_an_evaluation_is_saving() -> None:
    frames = [
        Frame(file="/env/site-packages/torch/serialization.py", line=1, function="_save"),
        Frame(file="/job/t.py", line=9, function="evaluate"),
    ]
    assert read_trainer(frames).activity is TrainerActivity.CHECKPOINT
    loads = [Frame(file="/env/site-packages/torch/serialization.py", line=1, function="load")]
    assert read_trainer(loads).activity is not TrainerActivity.CHECKPOINT


_FRAMES = st.builds(
    Frame,
    file=st.sampled_from(
        ["", "/job/a.py", "<frozen importlib._bootstrap>", "/x/torch/utils/data/dataloader.py", "/x/threading.py"]
    )
    | st.text(max_size=30),
    line=st.integers(-1, 10**6),
    function=st.text(max_size=20) | st.sampled_from(["__next__", "_worker_loop", "_bootstrap", "a.<locals>.b"]),
    is_native=st.booleans(),
)


@given(st.lists(_FRAMES, max_size=12), st.text(max_size=30))
def test_any_stack_is_read(frames: list[Frame], line: str) -> None:
    assert isinstance(read_trainer(frames, lambda _: line).activity, TrainerActivity)
    assert isinstance(read_worker(frames, lambda _: line).activity, WorkerActivity)
    worker_threads([ThreadStack(name="", tid=None, frames=tuple(frames), is_main=True)])
    if any("torch/utils/data/dataloader.py" in f.file and f.function == "__next__" for f in own_frames(frames)):
        assert read_trainer(frames).activity in (
            TrainerActivity.DATA_WAIT,
            TrainerActivity.EVALUATION,
            TrainerActivity.H2D_COPY,
        )
