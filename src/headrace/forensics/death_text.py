"""The pieces of the sentence about a worker's death, put together from facts and words."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from headrace.model import format_bytes
from headrace.signals.system import GroupMemory, OomCounts

from .death_facts import DeathCause, DeathFacts, SampleInHand
from .death_words import DeathWords
from .memory_sample import MemorySample

_LAST_MOMENTS_S = 2.0
_MEMORY_CAUSES = {
    DeathCause.MEMORY_LIMIT,
    DeathCause.MACHINE_MEMORY,
    DeathCause.MEMORY_UNSEEN,
    DeathCause.MAYBE_MEMORY,
}
_CRASHES = {
    DeathCause.SEGFAULT,
    DeathCause.ABORTED,
    DeathCause.ILLEGAL,
    DeathCause.ARITHMETIC,
    DeathCause.MAPPED_FILE,
    DeathCause.SHM_FULL,
    DeathCause.BUS_UNKNOWN,
}


def subject_text(facts: DeathFacts, words: DeathWords) -> str:
    if len(facts.workers) == 1:
        return words.worker.format(worker=facts.workers[0], pid=facts.pid)
    return words.workers.format(workers=", ".join(map(str, facts.workers)), pid=facts.pid)


def activity_text(facts: DeathFacts, words: DeathWords) -> str:
    if not facts.has_begun:
        return words.before_first
    named = [
        _sample_text(s, words) for s in facts.samples if s.position is not None or s.index is not None or s.is_collation
    ]
    if not named:
        return words.between
    return words.at_sample.format(samples=words.comma.join(named))


def _sample_text(sample: SampleInHand, words: DeathWords) -> str:
    if sample.is_collation:
        text = words.collation
    elif sample.index is not None:
        text = words.sample.format(index=sample.index)
    else:
        text = words.position.format(position=sample.position)
    inside = [sample.file] if sample.file else []
    if sample.age_s is not None:
        inside.append(words.age.format(age=_seconds(sample.age_s)))
    return text + (words.brackets.format(text=words.comma.join(inside)) if inside else "")


def bracket_texts(facts: DeathFacts, cause: DeathCause, words: DeathWords) -> list[str]:
    """What stands in brackets after the cause: limit and memory of the tree, or where a crash happened."""
    found = []
    last = fullest(facts)
    if cause is DeathCause.MEMORY_LIMIT:
        limit = limit_hit(facts) or _tightest(known_limits(facts))
        if limit is not None:
            found.append(words.limit.format(name=limit.group.name, limit=format_bytes(limit.limit_bytes or 0)))
    if cause is DeathCause.MACHINE_MEMORY and last is not None and last.total_bytes:
        free = format_bytes(last.available_bytes or 0)
        found.append(words.machine.format(total=format_bytes(last.total_bytes), free=free))
    if cause in _MEMORY_CAUSES and last is not None:
        found.append(_tree_text(facts, last, words))
    if cause in _CRASHES:
        if facts.stack:
            found.append(words.at_line.format(line=facts.stack[0]))
        if facts.kernel is not None and facts.kernel.library:
            found.append(words.in_library.format(library=facts.kernel.library))
    return found


def _tree_text(facts: DeathFacts, last: MemorySample, words: DeathWords) -> str:
    tree = format_bytes(last.tree_bytes)
    if facts.died_at_s is None:
        return words.tree.format(tree=tree)
    return words.tree_before.format(tree=tree, before=_seconds(max(0.0, facts.died_at_s - last.at_s)))


def evidence_texts(facts: DeathFacts, words: DeathWords) -> dict[str, str]:
    names = words.evidence
    found = {names["exit"]: signal_name(facts.exit_code) or words.exit_code.format(code=facts.exit_code)}
    before, after = kill_count(facts.oom_before), kill_count(facts.oom_after)
    if before is not None and after is not None:
        found[names["kills"]] = f"{before} → {after}"
    if facts.oom_before.machine is not None and facts.oom_after.machine is not None:
        found[names["machine_kills"]] = f"{facts.oom_before.machine} → {facts.oom_after.machine}"
    last = fullest(facts)
    if last is not None:
        found[names["memory"]] = _tree_text(facts, last, words)
        own = last.of(facts.pid)
        if own is not None:
            found[names["own"]] = format_bytes(own.pss_bytes)
        if last.queued_bytes:
            found[names["queued"]] = format_bytes(last.queued_bytes)
    for memory in known_limits(facts):
        used, limit = format_bytes(memory.used_bytes), format_bytes(memory.limit_bytes or 0)
        text = words.used.format(used=used, limit=limit)
        if memory.peak_bytes is not None:
            text += words.comma + words.peak.format(peak=format_bytes(memory.peak_bytes))
        found[f"{memory.group.name} {memory.group.folder.name}"] = text
    if facts.shm is not None:
        found["/dev/shm"] = shm_text(facts, words)
    if facts.stack:
        found[names["stack"]] = " < ".join(facts.stack[:4])
    if facts.kernel is not None:
        found[names["kernel"]] = facts.kernel.line
    return found


def kill_count(counts: OomCounts) -> int | None:
    known = (kills.kills for kills in counts.groups if kills.kills is not None)
    return next(known, counts.machine)


def shm_text(facts: DeathFacts, words: DeathWords) -> str:
    if facts.shm is None:
        return ""
    free, total = format_bytes(facts.shm.free_bytes), format_bytes(facts.shm.total_bytes)
    return words.shm.format(free=free, total=total)


def signal_name(code: int | None) -> str:
    if code is None or code >= 0:
        return ""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 100 else f"{value:.0f} s"


def limit_hit(facts: DeathFacts) -> GroupMemory | None:
    """The group whose own limit was hit between the counts: the tightest, where several were."""
    before = {kills.group: kills.limit_hits for kills in facts.oom_before.groups}
    hit = {k.group for k in facts.oom_after.groups if difference(before.get(k.group), k.limit_hits)}
    return _tightest(m for m in known_limits(facts) if m.group in hit)


def known_limits(facts: DeathFacts) -> tuple[GroupMemory, ...]:
    """The groups with a limit, as they were last seen: before the death, where that was sampled."""
    sample = fullest(facts)
    return (sample.groups if sample else ()) or facts.limits


def fullest(facts: DeathFacts) -> MemorySample | None:
    """The sample of the last moments in which the tree was largest.

    Not simply the last one: a look that falls into the kill sees a process that is already being taken apart.
    """
    if not facts.memory:
        return None
    end_s = facts.memory[-1].at_s if facts.died_at_s is None else facts.died_at_s
    moments = [sample for sample in facts.memory if end_s - sample.at_s <= _LAST_MOMENTS_S]
    return max(moments or facts.memory[-1:], key=lambda sample: sample.tree_bytes)


def _tightest(groups: Iterable[GroupMemory]) -> GroupMemory | None:
    return min(groups, key=lambda m: (m.limit_bytes or 0) - (m.peak_bytes or m.hard_bytes), default=None)


def difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)
