"""Which of several messages is the first cause, and what they decide about each other. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from .entries import DecidingMessage, MessageEntry, MessageSeverity, TrueCause

# What one occurrence of a message names, sorted by name: (("pid", "2811"), ("signal", "Killed")).
Occurrence = tuple[tuple[str, str], ...]
_WORST_FIRST = list(MessageSeverity)


@dataclass(frozen=True, slots=True)
class MessageFound:
    """A message of the knowledge base that stands in a text, all its occurrences taken together."""

    entry: MessageEntry
    text: str  # its line, verbatim but for colours and control characters; the first one, where there are several
    count: int
    first_line: int
    last_line: int
    occurrences: tuple[Occurrence, ...] = ()  # distinct ones, a bounded number
    is_partial: bool = False  # only a part of the message is there: others may fit as well
    explained_by: str = ""  # the id of the entry of which it is a consequence here
    decided: str = ""  # the name of the true cause that another message of the same text settles
    because: str = ""  # that other message, verbatim

    @property
    def values(self) -> Mapping[str, tuple[str, ...]]:
        """What the message names (a pid, a path, a limit …), each value once, in order of appearance."""
        values: dict[str, dict[str, None]] = {}
        for occurrence in self.occurrences:
            for name, value in occurrence:
                values.setdefault(name, {})[value] = None
        return {name: tuple(found) for name, found in values.items()}

    @property
    def open_causes(self) -> tuple[TrueCause, ...]:
        """The true causes between which nothing in the text decides; one, where it is decided."""
        settled = tuple(cause for cause in self.entry.true_causes if cause.name == self.decided)
        # One that the message would name, and does not, is none of them.
        return settled or tuple(cause for cause in self.entry.true_causes if not cause.where) or self.entry.true_causes

    @property
    def cause(self) -> str:
        """The cause of the design's word list, if all that is open agrees on one; else ""."""
        causes = {cause.cause for cause in self.open_causes}
        return causes.pop() if len(causes) == 1 else ""


def tell(found: Iterable[MessageFound]) -> tuple[MessageFound, ...]:
    """Order messages so that the one to read first comes first, and let them decide about each other.

    A message that is a consequence of another one in the same text comes behind it. Where a message names what
    settles the cause of another one (a kernel's line that killed the same pid), that one says so.
    """
    by_id = {one.entry.id: one for one in found}
    related = {id_: _relate(one, by_id) for id_, one in by_id.items()}
    order = _order(related)
    return tuple(sorted(related.values(), key=lambda one: order[one.entry.id]))


def _relate(one: MessageFound, by_id: Mapping[str, MessageFound]) -> MessageFound:
    for cause in one.entry.true_causes:
        for decision in cause.decided_by:
            other = by_id.get(decision.entry)
            if other is not None and _settles(decision, one, other):
                return replace(one, decided=cause.name, because=other.text, explained_by=other.entry.id)
    first = next((id_ for id_ in one.entry.follows if id_ in by_id), "")
    told = [cause.name for cause in one.entry.true_causes if cause.where and _names(one, cause)]
    return replace(one, explained_by=first, decided=told[0] if told else "", because=one.text if told else "")


def _names(one: MessageFound, cause: TrueCause) -> bool:
    return any(
        all(re.fullmatch(value, dict(said).get(name, ""), re.IGNORECASE) for name, value in cause.where)
        for said in one.occurrences
    )


def _settles(decision: DecidingMessage, one: MessageFound, other: MessageFound) -> bool:
    same = one.values.get(decision.same, ())
    return any(
        {*decision.where} <= {*occurrence} and (not decision.same or dict(occurrence).get(decision.same) in same)
        for occurrence in other.occurrences or ((),)
    )


def _order(related: Mapping[str, MessageFound]) -> dict[str, tuple[int, int, int, str, int, int, str]]:
    """Return what to sort by: stories by their worst message and their first line, in each the first cause first."""
    chains = {id_: _chain(id_, related) for id_ in related}
    stories: dict[str, list[MessageFound]] = {}
    for id_, chain in chains.items():
        stories.setdefault(chain[-1], []).append(related[id_])
    order = {}
    for root, members in stories.items():
        worst = min(_WORST_FIRST.index(one.entry.severity) for one in members)
        first_line = min(one.first_line for one in members)
        for one in members:
            depth = len(chains[one.entry.id])
            order[one.entry.id] = (int(one.is_partial), worst, first_line, root, depth, one.first_line, one.entry.id)
    return order


def _chain(id_: str, related: Mapping[str, MessageFound]) -> list[str]:
    """Return the ids from a message to the first cause of its story."""
    chain = [id_]
    while (next_id := related[chain[-1]].explained_by) and next_id not in chain:
        chain.append(next_id)
    return chain
