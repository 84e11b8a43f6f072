"""Which entry of the knowledge base tells of a worker's death, and which of its causes the facts bear out."""

from __future__ import annotations

from headrace.knowledge import TrueCause, entry

from .death_facts import DeathCause

# (entry, its true cause); no cause where the facts leave several
_KNOWN: dict[DeathCause, tuple[str, str]] = {
    DeathCause.MEMORY_LIMIT: ("worker_killed", "memory_limit"),
    DeathCause.MACHINE_MEMORY: ("worker_killed", "machine_memory"),
    DeathCause.MEMORY_UNSEEN: ("worker_killed", "machine_memory"),
    DeathCause.MAYBE_MEMORY: ("worker_killed", ""),
    DeathCause.KILLED: ("worker_killed", "someone_killed_it"),
    DeathCause.KILLED_UNKNOWN: ("worker_killed", ""),
    DeathCause.TERMINATED: ("worker_terminated", ""),
    DeathCause.SEGFAULT: ("worker_segfault", ""),
    DeathCause.ILLEGAL: ("worker_segfault", ""),
    DeathCause.ARITHMETIC: ("worker_segfault", ""),
    DeathCause.SHM_FULL: ("worker_bus_error", "shm_full"),
    DeathCause.MAPPED_FILE: ("worker_bus_error", "mapped_file_changed"),
    DeathCause.BUS_UNKNOWN: ("worker_bus_error", ""),
    DeathCause.ABORTED: ("worker_aborted", ""),
    DeathCause.EXITED: ("worker_exited_with_code", ""),
    DeathCause.UNKNOWN: ("worker_exited_unexpectedly", ""),
}


def entry_of(cause: DeathCause) -> str | None:
    """Return the id of the entry, for `headrace explain --message`; nothing where none tells of such a death."""
    known = _KNOWN.get(cause)
    return entry(known[0]).id if known is not None else None


def true_cause_of(cause: DeathCause) -> TrueCause | None:
    """Return what the knowledge base says of it; nothing where the facts leave several causes."""
    name, decided = _KNOWN.get(cause, ("", ""))
    return next((one for one in entry(name).true_causes if one.name == decided), None) if decided else None
