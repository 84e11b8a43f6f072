"""`headrace quarantine`: the samples that runs have condemned, shown, filtered and counted."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError
from headrace.model import SampleFailure, Text, first_line, is_json_key, key_text

from .arguments import Commands, add_command, add_language, language_of, whole
from .terminal import EXIT_FINDINGS, EXIT_OK, Terminal, line, plain_table, printable

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text as Line

    from headrace.knowledge import Hint
    from headrace.signals import DamagedLine, QuarantinedSample

_DESCRIPTION = """\
Show what is in quarantine files: the samples that a loader with quarantine=FILE has left out, and why. Each sample
is shown once, with the number of times it was condemned. Filters may be given more than once; --contains then asks
for all of its texts, the others for any of their values.
"""
_EPILOG = """\
exit codes: 0 no condemned sample (that passes the filters), 1 there are some, or damaged lines, 2 a file cannot be read
"""

_MOST_DAMAGES_SAID = 10
_LONGEST_KEY = 24
_LONGEST_PLACE = 60
_LONGEST_WHY = 160
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

_FAILED = {
    "exception": Text("exception", "抛出异常"),
    "worker_lost": Text("its worker died", "worker 进程死亡"),
    "hang": Text("hang", "卡死"),
}
_GROUPED_BY = {
    "exception": Text("exception", "异常"),
    "shard": Text("shard", "分片"),
    "file": Text("file", "文件"),
    "worker": Text("worker", "worker"),
    "rank": Text("rank", "rank"),
    "kind": Text("kind", "类型"),
}
_TIMES, _SAMPLE, _TRIES = Text("times", "次数"), Text("sample", "样本"), Text("tries", "尝试")


def add_parser(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser = add_command(
        commands,
        shared,
        "quarantine",
        summary="the samples that runs have left out, and why",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a quarantine file; several are read as one")
    filters = parser.add_argument_group("filters")
    filters.add_argument("--kind", action="append", choices=tuple(_FAILED), default=[], help="how the sample failed")
    filters.add_argument(
        "--exception", action="append", default=[], metavar="NAME", help="type of the exception, with or without module"
    )
    filters.add_argument(
        "--contains", action="append", default=[], metavar="TEXT", help="text in message, traceback, file, shard or key"
    )
    filters.add_argument(
        "--since", type=_since, default=None, metavar="WHEN", help="2h, 3d, 2026-07-30 or '2026-07-30 14:00' (local)"
    )
    filters.add_argument("--rank", action="append", type=int, default=[], metavar="N", help="rank that condemned it")
    filters.add_argument(
        "--shard", action="append", default=[], metavar="NAME", help="path or name of its shard; * and ? are allowed"
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument(
        "--by", choices=tuple(_GROUPED_BY), default=None, help="count by this instead of showing each sample"
    )
    shape.add_argument("--indices", action="store_true", help="only the indices or keys, one a line, as JSON")
    shape.add_argument("--traceback", action="store_true", help="each sample with its full traceback")
    parser.add_argument(
        "--limit", type=whole(0), default=100, metavar="N", help="show the last N samples (default: 100; 0: all)"
    )
    add_language(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document, schema headrace/quarantine/1")
    parser.set_defaults(run=lambda args, terminal: run(parser, args, terminal))


def _since(text: str) -> datetime:
    try:
        return parse_since(text, now=datetime.now(UTC))
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time; write an age such as 90m, 2h or 3d, or a date such as 2026-07-30"
        ) from None


def run(parser: argparse.ArgumentParser, args: argparse.Namespace, terminal: Terminal) -> int:
    """Read the files and print what was asked for."""
    if args.json and args.indices:
        parser.error("argument --json: not allowed with argument --indices; the document holds the keys too")
    language = language_of(args)
    choice = Choice(
        kinds=tuple(args.kind),
        exceptions=tuple(args.exception),
        contains=tuple(args.contains),
        since=args.since,
        ranks=tuple(args.rank),
        shards=tuple(args.shard),
    )
    report = _read(args.files, choice, group_by=args.by)
    _say_damages(report.damages, language, terminal)
    if args.json:
        terminal.json(report_json(report))
    elif args.indices:
        lines, others = key_lines(report.samples)
        if lines:
            terminal.document("\n".join(lines))
        if others:
            said = Text(
                f"samples without a key that JSON can hold are not listed: {others}",
                f"有 {others} 个样本的键无法用 JSON 表示，这里没有列出",
            )
            terminal.warn(said.of(language))
    elif args.traceback:
        terminal.document(report_tracebacks(report, language, limit=args.limit))
    else:
        terminal.parts(report_parts(report, language, limit=args.limit))
    return EXIT_FINDINGS if report.has_findings else EXIT_OK


def _say_damages(damages: Sequence[DamagedLine], language: str, terminal: Terminal) -> None:
    for damage in damages[:_MOST_DAMAGES_SAID]:
        at = f"{damage.path}:{damage.line}"
        said = Text(f"damaged line {at}: {damage.reason}", f"损坏的行 {at}：{damage.reason}")
        terminal.warn(printable(said.of(language)))
    left = len(damages) - _MOST_DAMAGES_SAID
    if left > 0:
        more = Text(
            f"and {left} more damaged lines; --json names them all", f"另有 {left} 行损坏；用 --json 可以看到全部"
        )
        terminal.warn(more.of(language))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The filters of `headrace quarantine`: a failure passes if it passes each one that is given."""

    kinds: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    contains: tuple[str, ...] = ()
    since: datetime | None = None
    ranks: tuple[int, ...] = ()
    shards: tuple[str, ...] = ()

    def passes(self, failure: SampleFailure) -> bool:
        """Whether a failure is asked for."""
        return (
            (not self.kinds or failure.kind in self.kinds)
            and (not self.exceptions or any(_is_named(failure.exception, name) for name in self.exceptions))
            and all(text.casefold() in _all_text(failure) for text in self.contains)
            and (self.since is None or _is_since(failure, self.since))
            and (not self.ranks or failure.rank in self.ranks)
            and (not self.shards or any(_is_shard(failure.shard, pattern) for pattern in self.shards))
        )

    def as_json(self) -> dict[str, Any]:
        """Return the filters that are given."""
        given = {name: value for name, value in asdict(self).items() if value}
        return given | ({"since": self.since.isoformat()} if self.since else {})


def parse_since(text: str, *, now: datetime) -> datetime:
    """Return the moment that "2h" (ago), "2026-07-30" or "2026-07-30 14:00" names; `ValueError` if it names none.

    A time without a zone is local time, as it is shown.

    >>> parse_since("90m", now=datetime(2026, 7, 30, 12, tzinfo=UTC)).isoformat()
    '2026-07-30T10:30:00+00:00'
    """
    age = _AGE.fullmatch(text.strip())
    if age:
        return now - timedelta(**{_UNITS[age.group(2)]: float(age.group(1))})
    return datetime.fromisoformat(text.strip()).astimezone()


def moment_of(time: str) -> datetime | None:
    """Return a time of a quarantine as a moment; `None` if a person has written something else there."""
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _is_named(exception: str, name: str) -> bool:
    """Whether `UnidentifiedImageError` or `PIL.UnidentifiedImageError` means this exception."""
    return exception == name or exception.rpartition(".")[2] == name


def _is_shard(shard: str | None, pattern: str) -> bool:
    """Whether a shard's path, or its last part, is the pattern or fits it."""
    if shard is None:
        return False
    names = (shard, shard.rpartition("/")[2])
    return pattern in names or any(fnmatchcase(name, pattern) for name in names)


def _is_since(failure: SampleFailure, since: datetime) -> bool:
    moment = moment_of(failure.time)
    return moment is not None and moment >= since


def _all_text(failure: SampleFailure) -> str:
    texts = (failure.exception, failure.message, failure.traceback, failure.file, failure.shard, str(failure.key))
    return "\n".join([text for text in texts if text] + [key_text(failure.key)]).casefold()


@dataclass(frozen=True, kw_only=True)
class QuarantineReport:
    """What was asked for, of how many, and which lines could not be read."""

    files: tuple[str, ...]
    choice: Choice
    samples: tuple[QuarantinedSample, ...]
    num_in_files: int
    damages: tuple[DamagedLine, ...]
    group_by: str | None = None

    @property
    def has_findings(self) -> bool:
        """Whether a sample is shown, or a line that may have named one is damaged."""
        return bool(self.samples or self.damages)


def _read(files: list[str], choice: Choice, *, group_by: str | None) -> QuarantineReport:
    from headrace.signals import DamagedLine, QuarantineFile, merge_failures

    failures: list[SampleFailure] = []
    damages: list[DamagedLine] = []
    for path in files:
        try:
            for entry in QuarantineFile(path).entries():
                if isinstance(entry, DamagedLine):
                    damages.append(entry)
                else:
                    failures.append(entry)
        except OSError as error:
            raise HeadraceError(f"cannot read {path}: {error.strerror or error}") from error
    return QuarantineReport(
        files=tuple(files),
        choice=choice,
        samples=tuple(merge_failures(filter(choice.passes, failures))),
        num_in_files=len(merge_failures(failures)),
        damages=tuple(damages),
        group_by=group_by,
    )


@dataclass(frozen=True, kw_only=True)
class GroupOf:
    """The samples that share an exception, a shard, a file, …; `name` is `None` where that is not known."""

    name: str | int | None
    samples: tuple[QuarantinedSample, ...]


def group_samples(samples: Iterable[QuarantinedSample], by: str) -> list[GroupOf]:
    """Return the groups, the largest first."""
    found: dict[str | int | None, list[QuarantinedSample]] = {}
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


def key_lines(samples: Iterable[QuarantinedSample]) -> tuple[list[str], int]:
    """Return each key as a line of JSON, and the number of samples that have none."""
    keys = [one.failure.key for one in samples]
    told = [key for key in keys if key is not None and is_json_key(key)]
    return [json.dumps(key, ensure_ascii=False) for key in told], len(keys) - len(told)


def report_parts(report: QuarantineReport, language: str, *, limit: int) -> list[Line | Table]:
    """Return what `headrace quarantine` prints: lines, and a table between them."""
    headline, *damaged = _headlines(report)
    parts = [line(headline.of(language), "bold"), *(line(said.of(language), "yellow") for said in damaged)]
    if not report.samples:
        return [*parts]
    if report.group_by:
        groups = group_samples(report.samples, report.group_by)
        shown = groups[:limit] if limit else groups
        table, left = _group_table(shown, report.group_by, language), len(groups) - len(shown)
    else:
        rows = _last(report.samples, limit)
        table, left = _sample_table(rows, language), len(report.samples) - len(rows)
    files = printable(shlex.join(report.files))
    below = [
        Text(
            f"Next: `headrace quarantine --traceback {files}` shows where each one failed.",
            f"下一步：`headrace quarantine --traceback {files}` 查看每个样本出错的位置。",
        )
    ]
    if len(report.files) == 1:
        file = report.files[0]
        said = Text(
            f"To leave them out from the start: DataLoader(…, skip_quarantined={file!r}).",
            f"如果要从一开始就跳过它们：DataLoader(…, skip_quarantined={file!r})。",
        )
        below.append(said)
    return [
        *parts,
        line(""),
        table,
        *([line(_cut(left).of(language))] if left else []),
        line(""),
        *map(line, _known_lines(report.samples, language)),
        *(line(said.of(language)) for said in below),
    ]


def report_tracebacks(report: QuarantineReport, language: str, *, limit: int) -> str:
    """Return what `headrace quarantine --traceback` prints: lines of code as they are, wrapped by nobody."""
    rows = _last(report.samples, limit)
    left = len(report.samples) - len(rows)
    lines = [said.of(language) for said in (*_headlines(report), *([_cut(left)] if left else []))]
    for condemned in rows:
        lines += ["", *_in_full(condemned, language)]
    return "\n".join(lines)


def _cut(left: int) -> Text:
    return Text(f"… and {left} more; --limit 0 shows all", f"…… 还有 {left} 个；加 --limit 0 显示全部")


def _hint(condemned: QuarantinedSample) -> Hint | None:
    from headrace.knowledge import hint_for

    failure = condemned.failure
    return hint_for(failure.traceback or f"{failure.exception}: {failure.message}")


def _known_lines(samples: Sequence[QuarantinedSample], language: str) -> list[str]:
    """Return what the knowledge base says of the failures, a line an entry, the most frequent first."""
    found: dict[str, tuple[int, str]] = {}
    for one in samples:
        if (hint := _hint(one)) is not None:
            count, _ = found.get(hint.entry_id, (0, ""))
            found[hint.entry_id] = (count + 1, hint.of(language))
    return [f"{count} × {line}" for count, line in sorted(found.values(), reverse=True)]


def _headlines(report: QuarantineReport) -> list[Text]:
    """Return how many samples there are, and, if there are any, how many damaged lines."""
    said, count = [_headline(report)], len(report.damages)
    if count == 1:
        said.append(
            Text(
                "1 damaged line could not be read; stderr says which",
                "有 1 行已损坏，无法读取；具体是哪一行见标准错误输出",
            )
        )
    elif count:
        said.append(
            Text(
                f"{count} damaged lines could not be read; stderr says which",
                f"有 {count} 行已损坏，无法读取；具体是哪些行见标准错误输出",
            )
        )
    return said


def _headline(report: QuarantineReport) -> Text:
    files = ", ".join(map(printable, report.files))
    count, total = len(report.samples), report.num_in_files
    if not total:
        return Text(f"no sample is condemned in {files}", f"{files} 里没有被隔离的样本")
    if not count:
        return Text(
            f"none of the {total} condemned samples in {files} passes the filters",
            f"{files} 里共有 {total} 个被隔离的样本，但没有一个符合筛选条件",
        )
    en = f"{count} sample{' is' if count == 1 else 's are'} condemned in {files}"
    zh = f"{files} 里有 {count} 个被隔离的样本"
    if count < total:
        en, zh = (
            f"{en} (of {total}; the others do not pass the filters)",
            f"{zh}（共 {total} 个，其余不符合筛选条件）",
        )
    times = [time for one in report.samples for time in (one.first_time, one.failure.time)]
    moments = sorted(moment for moment in map(moment_of, times) if moment)
    if moments:
        first, last = _local(moments[0]), _local(moments[-1])
        if first == last:
            return Text(f"{en}, at {first}", f"{zh}，时间 {first}")
        return Text(f"{en}, from {first} to {last}", f"{zh}，时间从 {first} 到 {last}")
    return Text(en, zh)


def _sample_table(samples: Sequence[QuarantinedSample], language: str) -> Table:
    has_ranks = len({one.failure.rank for one in samples}) > 1
    zone = datetime.now().astimezone().tzname()
    table = plain_table(gap=2)
    table.add_column(_TIMES.of(language), justify="right")
    table.add_column(_SAMPLE.of(language))
    table.add_column(Text("where and why", "位置与原因").of(language), ratio=1, overflow="fold")
    table.add_column(_TRIES.of(language), justify="right")
    if has_ranks:
        table.add_column("rank", justify="right")
    table.add_column("worker", justify="right")
    table.add_column(Text(f"last ({zone})", f"最近一次（{zone}）").of(language), no_wrap=True)
    for one in samples:
        failure = one.failure
        table.add_row(
            str(one.times),
            _key(failure, language),
            line("\n").join(part for part in (_where(failure), _why(failure, language)) if part),
            str(failure.tries),
            *([str(failure.rank)] if has_ranks else []),
            "" if failure.worker is None else str(failure.worker),
            _when(failure),
        )
    return table


def _group_table(groups: Sequence[GroupOf], by: str, language: str) -> Table:
    table = plain_table(gap=2)
    table.add_column(Text("samples", "样本数").of(language), justify="right")
    table.add_column(_GROUPED_BY[by].of(language), overflow="fold")
    table.add_column(Text("one of them", "其中之一").of(language), ratio=1, overflow="fold")
    for group in groups:
        name = Text("not known", "未知").of(language) if group.name is None else str(group.name)
        shown = _FAILED[name].of(language) if name in _FAILED else name
        last = group.samples[-1].failure
        example = line("  ").join(part for part in (_key(last, language), _where(last), _why(last, language)) if part)
        table.add_row(str(len(group.samples)), line(printable(shown)), example)
    return table


def _in_full(condemned: QuarantinedSample, language: str) -> list[str]:
    failure = condemned.failure
    facts = [
        f"{_SAMPLE.of(language)} {_key(failure, language, whole=True).plain}",
        *(printable(place) for place in (failure.file, failure.place) if place),
        f"{_TIMES.of(language)} {condemned.times}",
        f"{_TRIES.of(language)} {failure.tries}",
        f"rank {failure.rank}",
        *([] if failure.worker is None else [f"worker {failure.worker}"]),
        printable(failure.time),
    ]
    said = failure.traceback.rstrip() or _why(failure, language, whole=True).plain
    return ["  ".join(facts), printable(said)]


def _last(samples: Sequence[QuarantinedSample], limit: int) -> Sequence[QuarantinedSample]:
    return samples[-limit:] if limit else samples


def _key(failure: SampleFailure, language: str, *, whole: bool = False) -> Line:
    key = failure.key
    if key is None:
        return line(Text("without a key", "没有键").of(language), "italic")
    shown = printable(key if isinstance(key, str) else repr(key)).replace("\n", "\\n")
    return line(shown) if whole else _tail(shown, _LONGEST_KEY)


def _where(failure: SampleFailure) -> Line:
    return _tail(failure.file or failure.place or "", _LONGEST_PLACE)


def _why(failure: SampleFailure, language: str, *, whole: bool = False) -> Line:
    said = failure.message if whole else first_line(failure.message)
    name = failure.exception if whole else failure.exception.rpartition(".")[2]
    if failure.kind != "exception" or not name:
        name = _FAILED[failure.kind].of(language)
    text = printable(Text(": ", "：").of(language).join(part for part in (name, said) if part))
    return line(text if whole or len(text) <= _LONGEST_WHY else f"{text[: _LONGEST_WHY - 1]}…")


def _json_key(condemned: QuarantinedSample) -> Any:
    key = condemned.failure.key
    return key if is_json_key(key) else repr(key)


def _tail(text: str, longest: int) -> Line:
    """Return a text, or its end: the end of a path says more than its beginning."""
    text = printable(text)
    return line(text if len(text) <= longest else f"…{text[1 - longest :]}")


def _when(failure: SampleFailure) -> str:
    moment = moment_of(failure.time)
    return printable(failure.time) if moment is None else _local(moment)


def _local(moment: datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")
