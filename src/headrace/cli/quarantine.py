"""`headrace quarantine`: the samples that runs have condemned, shown, filtered and counted."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import NotAQuarantine, UnusableInput
from headrace.model import FailureKind, SampleFailure, Text, first_line, is_json_key, key_text

from .arguments import Commands, add_command, add_language, whole
from .terminal import EXIT_FINDINGS, EXIT_OK, Terminal, line, printable, say, table_of

if TYPE_CHECKING:
    from headrace.knowledge import Hint
    from headrace.signals import DamagedLine, QuarantinedSample

    from .terminal import Part

_DESCRIPTION = """\
Show what is in quarantine files: the samples that a loader with quarantine_file=FILE has left out, and why. Each sample
is shown once, with the number of times it was condemned. Filters may be given more than once; --contains then asks
for all of its texts, the others for any of their values.
"""
_EPILOG = """\
exit codes: 0 no condemned sample (that passes the filters), 1 there are some, or damaged lines, 2 a file cannot be read
"""

_WHICH_FILE = "the file that quarantine_file= names in the script; it is written once a sample has failed"
_LONGEST_KEY = 24
_LONGEST_WHY = 160
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

_GROUP_HEADS = {
    "exception": Text("samples,exception,one of them", "样本数,异常,其中之一"),
    "shard": Text("samples,shard,one of them", "样本数,分片,其中之一"),
    "file": Text("samples,file,one of them", "样本数,文件,其中之一"),
    "rank": Text("samples,rank,one of them", "样本数,rank,其中之一"),
}
_TIMES, _SAMPLE, _TRIES = Text("times", "次数"), Text("sample", "样本"), Text("tries", "尝试")
_HEADS = Text(
    "times,sample,where and why,tries,rank,worker,last ({zone})",
    "次数,样本,位置与原因,尝试,rank,worker,最近一次（{zone}）",
)


def add_parser(commands: Commands, shared: argparse.ArgumentParser) -> None:
    summary = "the samples that runs have left out, and why"
    parser = add_command(commands, shared, "quarantine", run, summary, description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument("files", nargs="+", metavar="FILE", help="a quarantine file; several are read as one")
    filters = parser.add_argument_group("filters")
    for name, shown, said in (
        ("--exception", "NAME", "type of the exception, with or without module; or worker_lost, or hang"),
        ("--contains", "TEXT", "text in message, traceback, file, shard or key"),
        ("--shard", "NAME", "path or name of its shard; * and ? are allowed"),
    ):
        filters.add_argument(name, action="append", default=[], metavar=shown, help=said)
    when = "2h, 3d, 2026-07-30 or '2026-07-30 14:00' (local)"
    filters.add_argument("--since", type=parse_since, metavar="WHEN", help=when)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--by", choices=tuple(_GROUP_HEADS), help="count by this instead of showing each sample")
    shape.add_argument("--indices", action="store_true", help="only the indices or keys, one a line, as JSON")
    shape.add_argument("--traceback", action="store_true", help="each sample with its full traceback")
    shape.add_argument("--json", action="store_true", help="print one JSON document, schema headrace/quarantine/1")
    last = "show the last N samples (default: 100; 0: all)"
    parser.add_argument("--limit", type=whole(0), default=100, metavar="N", help=last)
    add_language(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    from headrace.signals import DamagedLine, merge_failures

    entries = _read(args.files)
    failures = [entry for entry in entries if isinstance(entry, SampleFailure)]
    damages = [entry for entry in entries if isinstance(entry, DamagedLine)]
    total = len(merge_failures(failures))
    filters = {"exceptions": args.exception, "contains": args.contains, "shards": args.shard, "since": args.since}
    samples = merge_failures(failure for failure in failures if passes(failure, **filters))
    if args.json:
        terminal.json(_report_json(args.files, samples, total, damages))
    elif args.indices:
        lines, others = key_lines(samples)
        terminal.parts(lines)
        if damages:
            terminal.warn(_damage(damages))
        if others:
            left_out = Text(
                f"samples without a key that JSON can hold are not listed: {others}",
                f"有 {others} 个样本的键无法用 JSON 表示，这里没有列出",
            )
            terminal.warn(left_out)
    else:
        terminal.parts(_headlines(args.files, len(samples), total, damages))
        if args.traceback:
            terminal.parts(_tracebacks(samples, args.limit))
        elif samples:
            terminal.parts(_tables(args, samples))
    return EXIT_FINDINGS if samples or damages else EXIT_OK


def passes(
    failure: SampleFailure,
    *,
    exceptions: Sequence[str] = (),
    contains: Sequence[str] = (),
    shards: Sequence[str] = (),
    since: datetime | None = None,
) -> bool:
    moment = moment_of(failure.time)
    shard = () if failure.shard is None else (failure.shard, failure.shard.rpartition("/")[2])
    return (
        (not exceptions or bool({_name(failure), _name(failure).rpartition(".")[2]} & set(exceptions)))
        and all(text.casefold() in _all_text(failure) for text in contains)
        and (not shards or any(one == each or fnmatchcase(one, each) for one in shard for each in shards))
        and (since is None or (moment is not None and moment >= since))
    )


def parse_since(text: str, *, now: datetime | None = None) -> datetime:
    """Return the moment that "2h" (ago), "2026-07-30" or "2026-07-30 14:00" names.

    A time without a zone is local time, as it is shown.

    >>> parse_since("90m", now=datetime(2026, 7, 30, 12, tzinfo=UTC)).isoformat()
    '2026-07-30T10:30:00+00:00'
    """
    try:
        if age := _AGE.fullmatch(text.strip()):
            return (now or datetime.now(UTC)) - timedelta(**{_UNITS[age.group(2)]: float(age.group(1))})
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        what = f"{text!r} is no time; write an age such as 90m, 2h or 3d, or a date such as 2026-07-30"
        raise argparse.ArgumentTypeError(what) from None


def moment_of(time: str) -> datetime | None:
    """Return a time of a quarantine as a moment; `None` if a person has written something else there."""
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _name(failure: SampleFailure) -> str:
    """Return the type of a failure's exception, or how it failed without one."""
    return failure.exception or str(failure.kind)


def _all_text(failure: SampleFailure) -> str:
    texts = (failure.exception, failure.message, failure.traceback, failure.file, failure.shard, str(failure.key))
    return "\n".join([text for text in texts if text] + [key_text(failure.key)]).casefold()


def _read(files: list[str]) -> list[SampleFailure | DamagedLine]:
    from headrace.signals import QuarantineFile

    entries: list[SampleFailure | DamagedLine] = []
    for path in files:
        try:
            entries += QuarantineFile(path).entries()
        except NotAQuarantine as error:
            error.next_step = _WHICH_FILE
            raise
        except OSError as error:
            shown = f"`ls -ld {shlex.quote(path)}` shows who may read it"
            next_step = shown if isinstance(error, PermissionError) else _WHICH_FILE
            what = f"cannot read {path}: {error.strerror or error}"
            raise UnusableInput(what, current_folder=Path.cwd(), next_step=next_step) from error
    return entries


def group_samples(
    samples: Iterable[QuarantinedSample], by: str
) -> list[tuple[str | int | None, list[QuarantinedSample]]]:
    """Return the samples by exception, shard, …, the largest group first; `None` where that is not known."""
    found: dict[str | int | None, list[QuarantinedSample]] = {}
    for one in samples:
        name = _name(one.failure) if by == "exception" else getattr(one.failure, by)
        found.setdefault(name, []).append(one)
    return sorted(found.items(), key=lambda group: -len(group[1]))


def _report_json(
    files: list[str], samples: Sequence[QuarantinedSample], total: int, damages: Sequence[DamagedLine]
) -> dict[str, Any]:
    return {
        "schema": "headrace/quarantine/1",
        "files": files,
        "num_samples": len(samples),
        "num_samples_in_files": total,
        "samples": [
            {
                **one.failure.as_json(),
                "times": one.times,
                "first_time": one.first_time,
                "known": hint.entry_id if (hint := _hint(one)) is not None else None,
            }
            for one in samples
        ],
        "damaged_lines": [asdict(damage) for damage in damages],
    }


def key_lines(samples: Iterable[QuarantinedSample]) -> tuple[list[str], int]:
    """Return each key as a line of JSON, and the number of samples that have none."""
    keys = [one.failure.key for one in samples]
    told = [key for key in keys if key is not None and is_json_key(key)]
    return [json.dumps(key, ensure_ascii=False) for key in told], len(keys) - len(told)


def _headlines(paths: list[str], count: int, total: int, damages: Sequence[DamagedLine]) -> Iterator[Part]:
    files = ", ".join(map(printable, paths))
    passing = Text(f", of which {count} pass the filters", f"，其中 {count} 个符合筛选条件")
    some = passing if count < total else Text("", "")
    yield line(
        Text(f"condemned samples in {files}: {total}{some.en}", f"{files} 里被隔离的样本：{total} 个{some.zh}"), "bold"
    )
    if damages:
        yield line(_damage(damages), "yellow")


def _damage(damages: Sequence[DamagedLine]) -> Text:
    count, first = len(damages), damages[0]
    at = printable(f"{first.path}:{first.line}: {first.reason}")
    return Text(
        f"damaged lines that could not be read: {count}, the first {at} (--json names all)",
        f"有 {count} 行已损坏，无法读取，第一处是 {at}（--json 列出全部）",
    )


def _tables(args: argparse.Namespace, samples: Sequence[QuarantinedSample]) -> Iterator[Part]:
    limit, zone = args.limit, datetime.now().astimezone().tzname()
    yield ""
    if args.by:
        groups = group_samples(samples, args.by)
        rows = map(_group_row, groups[: limit or None])
        yield table_of(_GROUP_HEADS[args.by], rows, left=(), folded={1: None, 2: None})
        yield from _cut(len(groups), limit)
    else:
        yield table_of(
            _HEADS.filled(zone=zone), map(_row, samples[-limit:]), left=(6,), folded={1: _LONGEST_KEY, 2: None}
        )
        yield from _cut(len(samples), limit)
    yield ""
    found: dict[str, tuple[int, str]] = {}  # what the knowledge base says of the failures, by its entry
    for hint in filter(None, map(_hint, samples)):
        found[hint.entry_id] = (found.get(hint.entry_id, (0, ""))[0] + 1, say(hint.line))
    yield from (f"{count} × {said}" for count, said in sorted(found.values(), reverse=True))
    files = printable(shlex.join(args.files))
    yield Text(
        f"Next: `headrace quarantine --traceback {files}` shows where each one failed.",
        f"下一步：`headrace quarantine --traceback {files}` 查看每个样本出错的位置。",
    )
    if len(args.files) == 1:
        loader = f"DataLoader(…, skip_quarantined={args.files[0]!r})"
        yield Text(f"To leave them out from the start: {loader}.", f"如果要从一开始就跳过它们：{loader}。")


def _row(one: QuarantinedSample) -> Sequence[str]:
    failure, moment = one.failure, moment_of(one.failure.time)
    facts = ("" if each is None else str(each) for each in (failure.tries, failure.rank, failure.worker))
    last = printable(failure.time) if moment is None else moment.astimezone().strftime("%Y-%m-%d %H:%M")
    return str(one.times), _key(failure), "\n".join(_where_and_why(failure)), *facts, last


def _group_row(group: tuple[str | int | None, list[QuarantinedSample]]) -> Sequence[str]:
    name, samples = group
    labels: dict[object, Text] = {None: Text("not known", "未知")} | {kind.value: kind.label for kind in FailureKind}
    failure = samples[-1].failure
    return (
        str(len(samples)),
        printable(say(labels.get(name, str(name)))),
        "  ".join((_key(failure), *_where_and_why(failure))),
    )


def _tracebacks(samples: Sequence[QuarantinedSample], limit: int) -> Iterator[Part]:
    """Give each sample with its traceback: lines of code as they are, wrapped by nobody."""
    yield from _cut(len(samples), limit)
    for one in samples[-limit:]:
        failure = one.failure
        facts = [
            f"{say(_SAMPLE)} {_key(failure)}",
            *map(printable, filter(None, (failure.file, failure.place))),
            f"{say(_TIMES)} {one.times}",
            f"{say(_TRIES)} {failure.tries}",
            f"rank {failure.rank}",
            *([] if failure.worker is None else [f"worker {failure.worker}"]),
            printable(failure.time),
        ]
        yield from ("", "  ".join(facts), printable(failure.traceback.rstrip()) or _why(failure))


def _cut(count: int, limit: int) -> Iterator[Text]:
    if limit and (left := count - limit) > 0:
        yield Text(f"… and {left} more; --limit 0 shows all", f"…… 还有 {left} 个；加 --limit 0 显示全部")


def _hint(condemned: QuarantinedSample) -> Hint | None:
    from headrace.knowledge import hint_for

    failure = condemned.failure
    return hint_for(failure.traceback or f"{failure.exception}: {failure.message}")


def _key(failure: SampleFailure) -> str:
    key = failure.key
    if key is None:
        return say(Text("without a key", "没有键"))
    return printable(key if isinstance(key, str) else repr(key)).replace("\n", "\\n")


def _where_and_why(failure: SampleFailure) -> list[str]:
    where, why = printable(failure.file or failure.place or ""), _why(failure)
    return [part for part in (where, why if len(why) <= _LONGEST_WHY else f"{why[: _LONGEST_WHY - 1]}…") if part]


def _why(failure: SampleFailure) -> str:
    name = failure.exception.rpartition(".")[2]
    if failure.kind != "exception" or not name:
        name = say(failure.kind.label)
    return printable(say(Text(": ", "：")).join(filter(None, (name, first_line(failure.message)))))
