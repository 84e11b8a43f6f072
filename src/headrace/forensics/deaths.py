"""Why a worker died: one true sentence from recorded facts, with the evidence beside it."""

from __future__ import annotations

import signal

from .death_facts import Death, DeathCause, DeathFacts, SampleInHand, ShmRoom
from .death_text import (
    activity_text,
    bracket_texts,
    difference,
    evidence_texts,
    fullest,
    kill_count,
    limit_hit,
    shm_text,
    signal_name,
    subject_text,
)
from .death_words import DeathWords, death_words
from .known_deaths import entry_of, true_cause_of

__all__ = ["Death", "DeathCause", "DeathFacts", "SampleInHand", "ShmRoom", "describe_death", "judge"]

# below this share of free memory the machine was short when the kernel killed
_MACHINE_SHORT_SHARE = 0.05


def describe_death(facts: DeathFacts, *, language: str = "en") -> Death:
    """Say what ended a worker, in one sentence that the facts bear out.

    Where they do not tell the cause, the sentence says what is known. `evidence` and `next_step` have the shape that
    `HeadraceError` takes.
    """
    words = death_words(language)
    cause, is_certain = judge(facts)
    pieces = {
        "signal": signal_name(facts.exit_code),
        "code": str(facts.exit_code),
        "count": str(kill_count(facts.oom_after)),
        "shm": shm_text(facts, words),
        "why": facts.sent_by_guard or "",
        "cpu_limit": f"{facts.cpu_limit_s:.0f}" if facts.cpu_limit_s is not None else "",
    }
    what = words.causes[cause.value].format(**pieces)
    if cause is DeathCause.KILLED and facts.cpu_limit_s is not None:
        what += words.or_cpu_limit.format(**pieces)
    brackets = bracket_texts(facts, cause, words)
    if brackets:
        what += words.brackets.format(text=words.comma.join(brackets))
    sentence = words.sentence.format(
        subject=subject_text(facts, words), what=what, activity=activity_text(facts, words)
    )
    return Death(
        cause=cause,
        is_certain=is_certain,
        sentence=sentence,
        evidence=evidence_texts(facts, words),
        next_step=_next_step(cause, words, language),
    )


def _next_step(cause: DeathCause, words: DeathWords, language: str) -> str:
    """What to do about it: ours where this loader has a setting for it, else the knowledge base's, and its entry."""
    known, entry_id = true_cause_of(cause), entry_of(cause)
    step = words.next_steps.get(cause.value) or (known.fix.of(language).rstrip(".。") if known is not None else "")
    if entry_id is None:
        return step
    return f"{step}{words.semicolon if step else ''}`headrace explain --message {entry_id}`"


# ---------------------------------------------------------------------------------------- the judgement


def judge(facts: DeathFacts) -> tuple[DeathCause, bool]:
    """The cause that the facts bear out, and whether they leave no other."""
    if facts.exit_code is None:
        return DeathCause.UNKNOWN, False
    if facts.exit_code >= 0:
        return DeathCause.EXITED, True
    if facts.sent_by_guard is not None:
        return DeathCause.GUARD, True
    number = -facts.exit_code
    if number == signal.SIGKILL:
        return _judge_kill(facts)
    if number == signal.SIGBUS:
        if facts.shm is None:
            return DeathCause.BUS_UNKNOWN, False
        return (DeathCause.SHM_FULL if facts.shm.is_full else DeathCause.MAPPED_FILE), False
    return _BY_SIGNAL.get(number, DeathCause.OTHER_SIGNAL), True


_BY_SIGNAL: dict[int, DeathCause] = {
    signal.SIGSEGV: DeathCause.SEGFAULT,
    signal.SIGABRT: DeathCause.ABORTED,
    signal.SIGILL: DeathCause.ILLEGAL,
    signal.SIGFPE: DeathCause.ARITHMETIC,
    signal.SIGXCPU: DeathCause.CPU_LIMIT,
    signal.SIGSYS: DeathCause.FORBIDDEN_CALL,
    signal.SIGTERM: DeathCause.TERMINATED,
    signal.SIGHUP: DeathCause.TERMINATED,
    signal.SIGINT: DeathCause.TERMINATED,
    signal.SIGQUIT: DeathCause.TERMINATED,
    signal.SIGUSR1: DeathCause.TERMINATED,
    signal.SIGUSR2: DeathCause.TERMINATED,
}


def _judge_kill(facts: DeathFacts) -> tuple[DeathCause, bool]:
    if facts.kernel is not None and facts.kernel.is_memory_kill:
        # the kernel names the group whose limit it was, or says "Out of memory" for the machine's
        is_group = facts.kernel.group is not None or facts.kernel.line.startswith("Memory cgroup")
        return (DeathCause.MEMORY_LIMIT if is_group else DeathCause.MACHINE_MEMORY), True
    rose = _rise(facts)
    if rose is None:
        machine = difference(facts.oom_before.machine, facts.oom_after.machine)
        if machine == 0:  # the machine's count holds the kills of all groups
            return DeathCause.KILLED, facts.cpu_limit_s is None
        return (DeathCause.KILLED_UNKNOWN if machine is None else DeathCause.MAYBE_MEMORY), False
    if rose == 0:
        return DeathCause.KILLED, facts.cpu_limit_s is None
    if rose < facts.num_killed:
        return DeathCause.MAYBE_MEMORY, False
    if limit_hit(facts) is not None:
        return DeathCause.MEMORY_LIMIT, True
    sample = fullest(facts)
    available, total = (sample.available_bytes, sample.total_bytes) if sample else (None, None)
    if available is not None and total and available < _MACHINE_SHORT_SHARE * total:
        return DeathCause.MACHINE_MEMORY, True
    return DeathCause.MEMORY_UNSEEN, True


def _rise(facts: DeathFacts) -> int | None:
    """By how much the kills rose in the worker's control group; None where no group counts them."""
    before = {kills.group: kills.kills for kills in facts.oom_before.groups}
    rises = (difference(before.get(after.group), after.kills) for after in facts.oom_after.groups)
    # the innermost that counts: v1 counts a kill there alone, and what is further out counts other jobs' kills too
    return next((rise for rise in rises if rise is not None), None)
