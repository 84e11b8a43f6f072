"""A death is told truly: the cause only where the facts bear it out, in both languages."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.forensics.deaths import (
    DeathCause,
    DeathFacts,
    DeathWatch,
    SampleInHand,
    describe_death,
    judge,
)
from headrace.forensics.memory import MemorySample
from headrace.knowledge import entry
from headrace.signals.system import (
    MemoryGroup,
    OomCounts,
    memory_groups,
    read_limits,
    read_oom_counts,
)
from headrace.signals.system.cgroups import GroupKills

DATA = Path(__file__).parents[1] / "data" / "guard"
GIB = 1 << 30
BEFORE, AFTER = DATA / "slurm-v2-before", DATA / "slurm-v2-after"
GROUP = MemoryGroup(2, Path("/sys/fs/cgroup/job"))


def sampled(root: Path, *, at_s: float, tree_bytes: int, available: int = 100 * GIB) -> MemorySample:
    return MemorySample(
        at_s=at_s,
        own_bytes={77: tree_bytes},
        groups=read_limits(memory_groups(root)),
        available_bytes=available,
        total_bytes=252 * GIB,
    )


def recorded(name: Path) -> OomCounts:
    """Counters of a recorded tree, with its groups named as those of the tree before the kill."""
    counts = read_oom_counts(memory_groups(name), name)
    moved = [replace(k, group=MemoryGroup(2, BEFORE / k.group.folder.relative_to(name))) for k in counts.groups]
    return OomCounts(groups=tuple(moved), machine=counts.machine)


def counts(kills: int | None, *, hits: int | None = 0, machine: int | None = None) -> OomCounts:
    return OomCounts(groups=(GroupKills(group=GROUP, kills=kills, limit_hits=hits),), machine=machine)


def killed(**changes: object) -> DeathFacts:
    return replace(DeathFacts(workers=(3,), pid=77, exit_code=-9, died_at_s=1.5), **changes)  # type: ignore[arg-type]


def test_the_sentence_of_a_limit_that_killed() -> None:
    facts = DeathFacts(
        workers=(3,),
        pid=77,
        exit_code=-9,
        oom_before=recorded(BEFORE),
        oom_after=recorded(AFTER),
        memory=(sampled(BEFORE, at_s=10.0, tree_bytes=int(1.98 * GIB)),),
        died_at_s=10.3,
        samples=(SampleInHand(position=118, index=4711, age_s=0.42, file="scan_0031.npz"),),
    )
    death = describe_death(facts)
    assert death.sentence == (
        "worker 3 was killed by the kernel for memory (cgroup v2 limit 2.00 GiB, tree at 1.98 GiB 0.3 s before) "
        "while working on sample 4711 (scan_0031.npz, for 0.4 s)"
    )
    assert death.cause is DeathCause.MEMORY_LIMIT
    assert death.evidence["memory_kills"] == "0 → 1"
    assert "num_workers" in death.next_step
    chinese = describe_death(facts, language="zh")
    assert chinese.sentence == (
        "worker 3 因内存超限被内核杀死（cgroup v2 上限 2.00 GiB，0.3 s 前进程树占用 1.98 GiB），"
        "当时正在处理样本 4711（scan_0031.npz，已用 0.4 s）"
    )
    assert chinese.evidence["内存查杀计数"] == "0 → 1"


def test_without_memory_samples_the_limit_is_still_named() -> None:
    limits = read_limits(memory_groups(BEFORE))
    facts = killed(oom_before=recorded(BEFORE), oom_after=recorded(AFTER), limits=limits)
    assert "(cgroup v2 limit 2.00 GiB)" in describe_death(facts).sentence


def test_sigkill_with_an_unchanged_count_is_somebody_else() -> None:
    death = describe_death(killed(oom_before=counts(4), oom_after=counts(4)))
    assert death.cause is DeathCause.KILLED
    assert "somebody sent SIGKILL, not the kernel's memory killer, whose count did not change (4)" in death.sentence
    assert death.sentence.endswith("between two samples")
    assert death.next_step == "Find who; nothing in the loader is wrong; `headrace explain --message KB-01`"


def test_a_limit_of_processor_time_ends_in_sigkill_too() -> None:
    death = describe_death(killed(oom_before=counts(0), oom_after=counts(0), cpu_limit_s=3600.0))
    assert "3600 s of processor time" in death.sentence


def test_a_kill_without_a_limit_that_was_hit() -> None:
    unseen = killed(oom_before=counts(0), oom_after=counts(1))
    assert judge(unseen) is DeathCause.MEMORY_UNSEEN
    short = replace(unseen, memory=(sampled(BEFORE, at_s=1, tree_bytes=200 * GIB, available=GIB),))
    assert judge(short) is DeathCause.MACHINE_MEMORY
    assert "(252 GiB in all, 1.00 GiB available, tree at 200 GiB 0.5 s before)" in describe_death(short).sentence


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (OomCounts(), OomCounts(), DeathCause.KILLED_UNKNOWN),
        (OomCounts(machine=2), OomCounts(machine=2), DeathCause.KILLED),
        (OomCounts(machine=2), OomCounts(machine=3), DeathCause.MAYBE_MEMORY),
        (counts(None, machine=2), counts(None, machine=3), DeathCause.MAYBE_MEMORY),
        # the machine's count rose for somebody else's sake: our own group's did not
        (counts(1, machine=2), counts(1, machine=3), DeathCause.KILLED),
    ],
)
def test_what_cannot_be_known_is_not_said(before: OomCounts, after: OomCounts, expected: DeathCause) -> None:
    assert judge(killed(oom_before=before, oom_after=after)) is expected


def test_a_bus_error_with_and_without_room_in_shm() -> None:
    full = killed(exit_code=-signal.SIGBUS, shm=(0, 64 << 20))
    assert "while /dev/shm was full: 0 B free of 64.0 MiB" in describe_death(full).sentence
    assert "--shm-size" in describe_death(full).next_step
    roomy = replace(full, shm=(GIB, 2 * GIB), stack=("lmdb_data.py:40 in __getitem__",))
    death = describe_death(roomy)
    assert death.cause is DeathCause.MAPPED_FILE
    assert "truncated" in death.sentence
    assert "(at lmdb_data.py:40 in __getitem__)" in death.sentence
    unknown = describe_death(replace(full, shm=None))
    assert unknown.sentence == "worker 3 was ended by SIGBUS between two samples"


def test_a_crash_names_its_line() -> None:
    stack = ("decode.py:12 in read", "data.py:7 in __getitem__")
    death = describe_death(killed(exit_code=-signal.SIGSEGV, stack=stack, has_begun=False))
    expected = "worker 3 crashed in native code (SIGSEGV) (at decode.py:12 in read)"
    assert death.sentence == f"{expected} before its first sample"
    assert death.evidence["stack"] == "decode.py:12 in read < data.py:7 in __getitem__"


def test_crashes_of_other_kinds_say_what_they_are() -> None:
    illegal, divided = killed(exit_code=-signal.SIGILL), killed(exit_code=-signal.SIGFPE)
    assert "(SIGILL: an instruction that this processor does not have)" in describe_death(illegal).sentence
    assert "（SIGFPE：除以零）" in describe_death(divided, language="zh").sentence


def test_threads_of_one_process_die_together() -> None:
    samples = (SampleInHand(position=5, age_s=1.0), SampleInHand(position=6, index="b"), SampleInHand())
    death = describe_death(DeathFacts(workers=(0, 1, 2), pid=9, exit_code=3, died_at_s=0.0, samples=samples))
    assert death.sentence == (
        "the process of workers 0, 1, 2 ended itself with exit code 3: the data set, or a library that it uses, left "
        "the process while working on the sample at position 5 (for 1.0 s), sample b"
    )


def test_what_headrace_did_itself_is_not_blamed_on_others() -> None:
    death = describe_death(killed(sent_by_guard="sample 7 took longer than 60 s", oom_after=counts(9)))
    assert death.sentence.startswith("worker 3 was ended by Headrace: sample 7 took longer than 60 s")


_COUNT = st.none() | st.integers(0, 3)
_FACTS = st.builds(
    DeathFacts,
    workers=st.sampled_from([(0,), (1, 2)]),
    pid=st.just(77),
    exit_code=st.none() | st.integers(-64, 255),
    oom_before=st.builds(counts, _COUNT, hits=_COUNT, machine=_COUNT),
    oom_after=st.builds(counts, _COUNT, hits=_COUNT, machine=_COUNT),
    memory=st.just(()) | st.just((sampled(BEFORE, at_s=1.0, tree_bytes=GIB),)),
    died_at_s=st.floats(0, 1e4),
    samples=st.lists(
        st.builds(
            SampleInHand,
            position=st.none() | st.integers(0, 9),
            index=st.none() | st.integers() | st.text(),
            age_s=st.none() | st.floats(0, 1e6),
            file=st.none() | st.text(),
        ),
        max_size=3,
    ).map(tuple),
    has_begun=st.booleans(),
    shm=st.none() | st.tuples(st.integers(0, GIB), st.just(GIB)),
    stack=st.just(()) | st.just(("a.py:1 in f",)),
    sent_by_guard=st.none() | st.just("it hung {really}"),
    cpu_limit_s=st.none() | st.just(10.0),
)


@given(_FACTS, st.sampled_from(["en", "zh"]))
def test_whatever_the_facts_there_is_a_sentence(facts: DeathFacts, language: str) -> None:
    death = describe_death(facts, language=language)
    assert death.sentence
    assert all(isinstance(name, str) and isinstance(value, str) for name, value in death.evidence.items())
    memory_causes = {DeathCause.MEMORY_LIMIT, DeathCause.MACHINE_MEMORY, DeathCause.MEMORY_UNSEEN}
    if death.cause in memory_causes:  # never without a count that rose
        before, after = facts.oom_before.groups[0].kills, facts.oom_after.groups[0].kills
        assert before is not None
        assert after is not None
        assert after > before


class Machine:
    """A small recorded machine whose kill counter can be raised."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/self/cgroup").write_text("0::/job\n")
        self.group = root / "sys/fs/cgroup/job"
        self.group.mkdir(parents=True)
        (self.group / "memory.max").write_text(f"{GIB}\n")
        (self.group / "memory.current").write_text("0\n")
        self.set_kills(0)

    def set_kills(self, kills: int) -> None:
        (self.group / "memory.events").write_text(f"oom {kills}\noom_kill {kills}\n")


def judged(watch: DeathWatch, worker: int, now_s: float) -> DeathCause:
    return judge(watch.complete(killed(workers=(worker,), pid=70 + worker, died_at_s=now_s)))


def test_each_kill_explains_one_death(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    watch = DeathWatch(0.0, root=tmp_path)
    machine.set_kills(2)
    causes = [judged(watch, w, 0.1) for w in range(3)]
    assert causes == [DeathCause.MEMORY_LIMIT, DeathCause.MEMORY_LIMIT, DeathCause.KILLED]
    watch.note(5.0)
    machine.set_kills(3)
    assert judged(watch, 4, 5.1) is DeathCause.MEMORY_LIMIT


def test_a_kill_of_long_ago_explains_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    watch = DeathWatch(0.0, root=tmp_path)
    machine.set_kills(1)  # another job of the same group
    for second in range(1, 20):
        watch.note(float(second))
    assert judged(watch, 0, 20.0) is DeathCause.KILLED


@pytest.mark.parametrize("cause", DeathCause)
def test_a_death_refers_to_an_entry_that_exists(cause: DeathCause) -> None:
    assert not cause.value.entry or entry(cause.value.entry).true_causes


def test_a_kill_by_somebody_and_the_knowledge_base_advise_the_same() -> None:
    step, known = DeathCause.KILLED.value.step, entry("worker_killed").true_causes
    (fix,) = [one.fix for one in known if one.name == "someone_killed_it"]
    assert step is not None
    assert (fix.en, fix.zh) == (f"{step.en}.", f"{step.zh}。")
