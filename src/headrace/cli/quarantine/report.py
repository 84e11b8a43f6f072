"""The condemned samples as text and as JSON, from the same object."""

import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from headrace.knowledge import Hint, hint_for
from headrace.model import SampleFailure, first_line, is_json_key
from headrace.signals import Condemned, Damage

from .choice import Choice, moment_of
from .messages import QuarantineMessages

_LONGEST_KEY = 24
_LONGEST_PLACE = 60
_LONGEST_WHY = 160


@dataclass(frozen=True, kw_only=True)
class QuarantineReport:
    """What was asked for, of how many, and which lines could not be read."""

    files: tuple[str, ...]
    choice: Choice
    samples: tuple[Condemned, ...]
    num_in_files: int
    damages: tuple[Damage, ...]
    group_by: str | None = None

    @property
    def has_findings(self) -> bool:
        """Whether a sample is shown, or a line that may have named one is damaged."""
        return bool(self.samples or self.damages)


@dataclass(frozen=True, kw_only=True)
class GroupOf:
    """The samples that share an exception, a shard, a file, …; `name` is `None` where that is not known."""

    name: str | int | None
    samples: tuple[Condemned, ...]


def group_samples(samples: Iterable[Condemned], by: str) -> list[GroupOf]:
    """Return the groups, the largest first."""
    found: dict[str | int | None, list[Condemned]] = {}
    for condemned in samples:
        failure = condemned.failure
        name = (failure.exception or str(failure.kind)) if by == "exception" else getattr(failure, by)
        found.setdefault(name, []).append(condemned)
    groups = [GroupOf(name=name, samples=tuple(members)) for name, members in found.items()]
    return sorted(groups, key=lambda group: -len(group.samples))


def report_json(report: QuarantineReport) -> dict[str, Any]:
    """Return the document that `headrace quarantine --json` prints."""
    document: dict[str, Any] = {
        "schema": "headrace/quarantine/1",
        "files": list(report.files),
        "filters": report.choice.as_json(),
        "num_samples": len(report.samples),
        "num_samples_in_files": report.num_in_files,
        "samples": [
            {
                **condemned.failure.as_json(),
                "times": condemned.times,
                "first_time": condemned.first_time,
                "known": hint.entry_id if (hint := _hint(condemned)) is not None else None,
            }
            for condemned in report.samples
        ],
        "damaged_lines": [asdict(damage) for damage in report.damages],
    }
    if report.group_by:
        document["group_by"] = report.group_by
        document["groups"] = [
            {"name": group.name, "num_samples": len(group.samples), "keys": [_json_key(one) for one in group.samples]}
            for group in group_samples(report.samples, report.group_by)
        ]
    return document


def key_lines(samples: Iterable[Condemned]) -> tuple[list[str], int]:
    """Return each key as a line of JSON, and the number of samples that have none."""
    keys = [one.failure.key for one in samples]
    told = [key for key in keys if key is not None and is_json_key(key)]
    return [json.dumps(key, ensure_ascii=False) for key in told], len(keys) - len(told)


def report_parts(
    report: QuarantineReport, words: QuarantineMessages, *, limit: int, language: str = "en"
) -> list[Text | Table]:
    """Return what `headrace quarantine` prints: lines, and a table between them."""
    headline, *damaged = _headlines(report, words)
    parts: list[Text | Table] = [Text(headline, style="bold"), *(Text(line, style="yellow") for line in damaged)]
    if not report.samples:
        return parts
    parts.append(Text(""))
    if report.group_by:
        groups = group_samples(report.samples, report.group_by)
        shown = groups[:limit] if limit else groups
        parts.append(_group_table(shown, report.group_by, words))
        left = len(groups) - len(shown)
    else:
        rows = _last(report.samples, limit)
        parts.append(_sample_table(rows, words))
        left = len(report.samples) - len(rows)
    parts += [Text(words.cut.format(left=left))] if left else []
    parts.append(Text(""))
    parts += [Text(line) for line in _known_lines(report.samples, language)]
    parts.append(Text(words.next_traceback.format(files=printable(shlex.join(report.files)))))
    if len(report.files) == 1:
        parts.append(Text(words.next_step.format(file=report.files[0])))
    return parts


def report_tracebacks(report: QuarantineReport, words: QuarantineMessages, *, limit: int) -> str:
    """Return what `headrace quarantine --traceback` prints: lines of code as they are, wrapped by nobody."""
    rows = _last(report.samples, limit)
    lines = _headlines(report, words)
    if len(rows) < len(report.samples):
        lines.append(words.cut.format(left=len(report.samples) - len(rows)))
    for condemned in rows:
        lines += ["", *_in_full(condemned, words)]
    return "\n".join(lines)


def printable(text: str) -> str:
    r"""Return a text without the characters that steer a terminal: a message may hold what a broken file held.

    >>> printable("a\x1b[31mb\tc\n\x00"), printable("扫描")
    ('a\\x1b[31mb\tc\n\\x00', '扫描')
    """
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _hint(condemned: Condemned) -> Hint | None:
    failure = condemned.failure
    return hint_for(failure.traceback or f"{failure.exception}: {failure.message}")


def _known_lines(samples: Sequence[Condemned], language: str) -> list[str]:
    """Return what the knowledge base says of the failures, a line an entry, the most frequent first."""
    found: dict[str, tuple[int, str]] = {}
    for one in samples:
        if (hint := _hint(one)) is not None:
            count, _ = found.get(hint.entry_id, (0, ""))
            found[hint.entry_id] = (count + 1, hint.of(language))
    return [f"{count} × {line}" for count, line in sorted(found.values(), reverse=True)]


def _headlines(report: QuarantineReport, words: QuarantineMessages) -> list[str]:
    """Return how many samples there are, and, if there are any, how many damaged lines."""
    damaged = words.one_damaged if len(report.damages) == 1 else words.damaged
    return [_headline(report, words), *([damaged.format(count=len(report.damages))] if report.damages else [])]


def _headline(report: QuarantineReport, words: QuarantineMessages) -> str:
    files = ", ".join(map(printable, report.files))
    count, total = len(report.samples), report.num_in_files
    if count == 0:
        return (words.nothing_passes if total else words.nothing).format(all=total, files=files)
    said = (words.one_sample if count == 1 else words.samples).format(count=count, files=files)
    if count < total:
        said += words.of_all.format(all=total)
    times = [time for one in report.samples for time in (one.first_time, one.failure.time)]
    moments = sorted(moment for moment in map(moment_of, times) if moment)
    if moments:
        first, last = _local(moments[0]), _local(moments[-1])
        said += (words.at if first == last else words.between).format(first=first, last=last)
    return said


def _sample_table(samples: Sequence[Condemned], words: QuarantineMessages) -> Table:
    has_ranks = len({one.failure.rank for one in samples}) > 1
    table = _table()
    table.add_column(words.times, justify="right")
    table.add_column(words.sample)
    table.add_column(words.where_and_why, ratio=1, overflow="fold")
    table.add_column(words.tries, justify="right")
    if has_ranks:
        table.add_column(words.rank, justify="right")
    table.add_column(words.worker, justify="right")
    table.add_column(words.when.format(zone=_zone()), no_wrap=True)
    for one in samples:
        failure = one.failure
        table.add_row(
            str(one.times),
            _key(failure, words),
            Text("\n").join(part for part in (_where(failure), _why(failure, words)) if part),
            str(failure.tries),
            *([str(failure.rank)] if has_ranks else []),
            "" if failure.worker is None else str(failure.worker),
            _when(failure),
        )
    return table


def _group_table(groups: Sequence[GroupOf], by: str, words: QuarantineMessages) -> Table:
    table = _table()
    table.add_column(words.num_samples, justify="right")
    table.add_column(words.groups[by], overflow="fold")
    table.add_column(words.example, ratio=1, overflow="fold")
    for group in groups:
        name = words.unknown if group.name is None else str(group.name)
        last = group.samples[-1].failure
        example = Text("  ").join(part for part in (_key(last, words), _where(last), _why(last, words)) if part)
        table.add_row(str(len(group.samples)), Text(printable(words.kinds.get(name, name))), example)
    return table


def _in_full(condemned: Condemned, words: QuarantineMessages) -> list[str]:
    failure = condemned.failure
    facts = [
        f"{words.sample} {_key(failure, words, whole=True).plain}",
        *(printable(place) for place in (failure.file, failure.place) if place),
        f"{words.times} {condemned.times}",
        f"{words.tries} {failure.tries}",
        f"{words.rank} {failure.rank}",
        *([] if failure.worker is None else [f"{words.worker} {failure.worker}"]),
        printable(failure.time),
    ]
    said = failure.traceback.rstrip() or _why(failure, words, whole=True).plain
    return ["  ".join(facts), printable(said)]


def _table() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")


def _last(samples: Sequence[Condemned], limit: int) -> Sequence[Condemned]:
    return samples[-limit:] if limit else samples


def _key(failure: SampleFailure, words: QuarantineMessages, *, whole: bool = False) -> Text:
    if failure.key is None:
        return Text(words.no_key, style="italic")
    key = failure.key
    shown = printable(key if isinstance(key, str) else repr(key)).replace("\n", "\\n")
    return Text(shown) if whole else _tail(shown, _LONGEST_KEY)


def _where(failure: SampleFailure) -> Text:
    return _tail(failure.file or failure.place or "", _LONGEST_PLACE)


def _why(failure: SampleFailure, words: QuarantineMessages, *, whole: bool = False) -> Text:
    said = failure.message if whole else first_line(failure.message)
    name = failure.exception if whole else failure.exception.rpartition(".")[2]
    if failure.kind != "exception" or not name:
        name = words.kinds[failure.kind]
    text = printable(words.colon.join(part for part in (name, said) if part))
    return Text(text if whole or len(text) <= _LONGEST_WHY else f"{text[: _LONGEST_WHY - 1]}…")


def _json_key(condemned: Condemned) -> Any:
    key = condemned.failure.key
    return key if is_json_key(key) else repr(key)


def _tail(text: str, longest: int) -> Text:
    """Return a text, or its end: the end of a path says more than its beginning."""
    text = printable(text)
    return Text(text if len(text) <= longest else f"…{text[1 - longest :]}")


def _when(failure: SampleFailure) -> str:
    moment = moment_of(failure.time)
    return printable(failure.time) if moment is None else _local(moment)


def _local(moment: datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")


def _zone() -> str:
    return str(datetime.now().astimezone().tzname())
