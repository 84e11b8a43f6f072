"""What `headrace chaos` found, as text and as JSON from the same object."""

import os
import platform
from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace import __version__
from headrace.doctor.chaos import PROBLEMS, ChaosReport, RoundVerdict

from .messages import ChaosMessages

_MOST_ROUNDS = 10
_MOST_OWN = 10
_MOST_STACK_LINES = 60


def report_text(report: ChaosReport, words: ChaosMessages) -> RenderableType:
    """Return what the command prints."""
    totals, subject, settings = report.totals(), report.subject, report.settings
    facts = words.facts.format(
        delivered=totals["delivered"],
        rounds=totals["rounds"],
        most=settings.most_samples,
        batch_size=subject.batch_size,
        workers=subject.num_workers,
        backend=settings.backend,
        start_method=subject.start_method,
        elapsed=report.elapsed_s,
    )
    parts: list[RenderableType] = [
        Text(words.title.format(dataset=subject.dataset), style="bold"),
        Text(facts),
        Text(words.repeat.format(seed=settings.seed)),
        Text(""),
        _table(report, words),
        Text(""),
    ]
    parts += [
        Text(words.skipped.format(kind=words.kinds[kind], reason=reason)) for kind, reason in subject.skipped.items()
    ]
    if report.is_clean:
        parts.append(Text(words.all_survived, style="green"))
    else:
        parts += [Text(line, style="bold red") for line in _problems(report, words)]
    if totals["quarantined"]:
        parts.append(Text(words.quarantined.format(quarantined=totals["quarantined"])))
    parts += [Text(line, style="yellow") for line in _own(report, words)]
    parts.append(Text(words.next_clean if report.is_clean else words.next_problems))
    return Group(*parts)


def _table(report: ChaosReport, words: ChaosMessages) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column(words.fault)
    for title in (words.injected, words.survived, words.worst_wait):
        table.add_column(title, justify="right")
    for kind, figures in report.kinds().items():
        is_good = figures.survived == figures.injected
        table.add_row(
            f"{words.kinds[kind]}",
            str(figures.injected),
            Text(str(figures.survived), style="green" if is_good else "bold red"),
            f"{figures.worst_wait_s:.2f} s",
        )
    return table


def _problems(report: ChaosReport, words: ChaosMessages) -> Iterator[str]:
    totals = report.totals()
    yield words.problems_title
    for name in PROBLEMS:
        if totals[name]:
            yield f"  {totals[name]} {words.problems[name]}"
    bad = [
        (facts, verdict) for facts, verdict in zip(report.rounds, report.verdicts, strict=True) if not verdict.is_clean
    ]
    for facts, verdict in bad[:_MOST_ROUNDS]:
        yield words.round_line.format(number=facts.number, what="; ".join(_what(verdict, words)))
        if facts.stacks:
            yield words.hang_stacks
            yield from (f"    {line}" for line in facts.stacks.splitlines()[-_MOST_STACK_LINES:])
    yield from (f"  {line}" for line in report.left)


def _what(verdict: RoundVerdict, words: ChaosMessages) -> Iterator[str]:
    samples = {
        "lost": verdict.lost,
        "repeated": verdict.repeated,
        "damaged": verdict.wrong,
        "wrongly_condemned": tuple(one.index for one in verdict.innocent),
        "wrongly_spared": verdict.spared,
    }
    for name, indices in samples.items():
        if indices:
            shown = ", ".join(map(str, indices[:8])) + (", …" if len(indices) > 8 else "")
            yield f"{words.problems[name]}: {shown}"
    if verdict.out_of_order:
        yield f"{words.problems['out_of_order']}: {verdict.out_of_order}"
    yield from filter(None, [verdict.sizes, verdict.error, words.problems["hangs"] if verdict.is_hang else ""])
    yield from verdict.left


def _own(report: ChaosReport, words: ChaosMessages) -> Iterator[str]:
    own = report.own_failures
    if own:
        yield words.own.format(count=len(own))
        for one in own[:_MOST_OWN]:
            message = one.message.strip().splitlines()[-1] if one.message.strip() else ""
            yield words.own_line.format(index=one.index, exception=one.exception, message=message)


def report_json(report: ChaosReport) -> dict[str, Any]:
    """Return the document that `headrace chaos --json` prints."""
    return {
        "schema": "headrace/chaos/1",
        "versions": {"headrace": __version__, "python": platform.python_version()},
        "machine": {"cores": len(os.sched_getaffinity(0)), "system": f"{platform.system()} {platform.machine()}"},
        "settings": report.settings.as_json(),
        "subject": {**vars(report.subject), "skipped": dict(report.subject.skipped)},
        "elapsed_s": report.elapsed_s,
        "is_clean": report.is_clean,
        "totals": report.totals(),
        "kinds": {kind.value: vars(figures) for kind, figures in report.kinds().items()},
        "own_failures": [vars(one) for one in report.own_failures],
        "problems": [
            {
                "round": facts.number,
                "lost": list(verdict.lost),
                "repeated": list(verdict.repeated),
                "out_of_order": verdict.out_of_order,
                "damaged": list(verdict.wrong),
                "wrongly_condemned": [vars(one) for one in verdict.innocent],
                "wrongly_spared": list(verdict.spared),
                "batch_sizes": verdict.sizes,
                "error": verdict.error,
                "is_hang": verdict.is_hang,
                "left": list(verdict.left),
                "stacks": facts.stacks,
            }
            for facts, verdict in zip(report.rounds, report.verdicts, strict=True)
            if not verdict.is_clean
        ],
        "left": list(report.left),
    }
