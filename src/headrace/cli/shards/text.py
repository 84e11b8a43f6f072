"""What a survey of shards found, as text and as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from headrace.model import format_bytes
from headrace.storage.shards import ShardFacts, list_samples

from .messages import ShardsMessages

if TYPE_CHECKING:
    from rich.console import RenderableType

SCHEMA = "headrace/shards/1"
_MOST_ROWS = 50  # shards in the table: those with something wrong first
_MOST_LINES = 20

Pairing = str | Mapping[str, str]


def report_parts(
    facts: Sequence[ShardFacts], words: ShardsMessages, *, urls: Sequence[str], verify: bool
) -> "Iterator[RenderableType | str]":
    """Give the report, part by part."""
    yield _table(facts, words)
    yield words.total.format(
        shards=len(facts),
        samples=sum(shard.num_samples for shard in facts),
        members=sum(shard.num_members for shard in facts),
        size=format_bytes(sum(shard.size for shard in facts)),
    )
    made = sum(shard.is_new_index for shard in facts)
    yield words.indexed.format(made=made, kept=sum(not shard.error for shard in facts) - made)
    if verify:
        yield words.verified if all(shard.was_verified for shard in facts if not shard.error) else words.stored
    yield from _damage_lines(facts, words)
    yield from _unpaired_lines(facts, words)
    num_skipped = sum(shard.num_skipped for shard in facts)
    if num_skipped:
        name, _, kind = next(shard.skipped[0] for shard in facts if shard.skipped)
        said = words.kinds.get(kind, words.other_kind)
        yield words.skipped.format(count=num_skipped, name=_printable(name), kind=said)
    yield ""
    if all(shard.is_whole for shard in facts):
        yield words.next_good.format(urls=urls[0] if len(urls) == 1 else list(urls))
    elif all(shard.has_only_unpaired for shard in facts):
        yield words.next_unpaired
    else:
        yield words.next_damaged


def _table(facts: Sequence[ShardFacts], words: ShardsMessages) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(words.shard, overflow="fold")
    for name in (words.samples, words.members, words.size):
        table.add_column(name, justify="right")
    table.add_column(words.fields, overflow="fold")
    table.add_column(words.state, overflow="fold")
    shown = sorted(facts, key=lambda shard: shard.is_whole)[:_MOST_ROWS]
    for shard in (one for one in facts if one in shown):
        state, style = words.good, "green"
        if shard.error:
            state, style = _why_unreadable(shard, words), "red"
        elif not shard.is_whole:
            places = len(shard.damage) + len(shard.wrong_data)
            state, style = (words.damaged.format(places=places), "red") if places else (words.good, "yellow")
        table.add_row(
            Text(_printable(shard.path)),
            str(shard.num_samples),
            str(shard.num_members),
            format_bytes(shard.size),
            Text(_printable(", ".join(shard.fields[:8]) + (", …" if len(shard.fields) > 8 else ""))),
            Text(_printable(state), style=style),
        )
    return table


def _why_unreadable(shard: ShardFacts, words: ShardsMessages) -> str:
    if shard.compression:
        return words.compressed.format(name=shard.compression)
    return words.not_a_tar if shard.is_no_tar else words.unreadable.format(what=shard.error)


def _damage_lines(facts: Sequence[ShardFacts], words: ShardsMessages) -> Iterator[str]:
    if any(shard.damage or shard.wrong_data for shard in facts):
        yield ""
        yield words.damage_title
    for shard in facts:
        for damage in shard.damage[:_MOST_LINES]:
            yield words.damage[damage.kind.value].format(
                shard=_printable(shard.path), offset=damage.offset, size=damage.size, member=_printable(damage.member)
            )
            yield words.readable.format(before=damage.before, after=damage.after)
        for key in shard.damaged_samples[:_MOST_LINES]:
            yield words.damaged_sample.format(key=_printable(key))
        if shard.wrong_data:
            name = _printable(shard.wrong_data[0])
            yield words.wrong_data.format(shard=_printable(shard.path), count=len(shard.wrong_data), name=name)


def _unpaired_lines(facts: Sequence[ShardFacts], words: ShardsMessages) -> Iterator[str]:
    num = sum(shard.num_unpaired for shard in facts)
    if not num:
        return
    yield ""
    yield words.unpaired_title.format(count=num)
    named = [member for shard in facts for member in shard.unpaired][:_MOST_LINES]
    for member in named:
        reason = words.reasons.get(member.reason)
        if reason is None:
            reason = words.lacks.format(fields=member.reason.removeprefix("its sample has no "))
        yield words.unpaired_line.format(
            shard=_printable(member.shard), name=_printable(member.name), reason=_printable(reason)
        )
    if num > len(named):
        yield words.unpaired_more.format(count=num - len(named))


def list_lines(facts: Sequence[ShardFacts], pairing: Pairing, fields: Sequence[str] | None) -> Iterator[str]:
    """Give a line for each sample: shard, key, and each field with its size, between tabs."""
    for shard in facts:
        if not shard.error:
            for key, sizes in list_samples(shard, pairing=pairing, fields=fields):
                told = " ".join(f"{name}:{size}" for name, size in sizes.items())
                yield "\t".join((_printable(shard.path), _printable(key), _printable(told)))


def document(
    facts: Sequence[ShardFacts], pairing: Pairing, fields: Sequence[str] | None, *, with_samples: bool
) -> dict[str, Any]:
    """Return the survey as JSON holds it."""
    shards = []
    for shard in facts:
        told: dict[str, Any] = {
            "path": shard.path,
            "is_whole": shard.is_whole,
            "error": shard.error or None,
            "index": shard.index or None,
            "is_new_index": shard.is_new_index,
            "size_bytes": shard.size,
            "num_samples": shard.num_samples,
            "num_members": shard.num_members,
            "fields": list(shard.fields),
            "damage": [damage.as_json() for damage in shard.damage],
            "damaged_samples": list(shard.damaged_samples),
            "num_unpaired": shard.num_unpaired,
            "unpaired": [{"name": m.name, "offset": m.offset, "reason": m.reason} for m in shard.unpaired],
            "num_skipped": shard.num_skipped,
            "was_verified": shard.was_verified,
            "wrong_data": list(shard.wrong_data),
        }
        if with_samples and not shard.error:
            told["samples"] = [
                {"key": key, "fields": sizes} for key, sizes in list_samples(shard, pairing=pairing, fields=fields)
            ]
        shards.append(told)
    return {
        "schema": SCHEMA,
        "num_samples": sum(shard.num_samples for shard in facts),
        "is_whole": all(shard.is_whole for shard in facts),
        "shards": shards,
    }


def _printable(text: str) -> str:
    """Return a name that a terminal cannot mistake for a command."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
