"""What `headrace storage` found, as text and as JSON from the same object."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from headrace import __version__
from headrace.model import format_bytes, format_seconds, format_share, three_digits
from headrace.storage.media import Coldness, Knee, KneeState, ProbeResult, Reading, StorageKind

from .messages import StorageMessages

_LONGEST_EXAMPLE = 60
_STYLES = {Coldness.COLD: "", Coldness.WARM: "dim", Coldness.PARTLY: "yellow", Coldness.UNKNOWN: "yellow"}


def kind_text(path: str, kind: StorageKind, words: StorageMessages, language: str) -> Iterator[Text]:
    """What is under a path, without a measurement."""
    yield Text(words.title.format(path=path, label=kind.medium.label.of(language)), style="bold")
    yield Text(f"  {kind.name}")
    for fact in kind.evidence:
        yield Text("  " + words.evidence.format(fact=fact))
    depth = words.measured_depth if kind.is_depth_measured else words.start_depth
    yield Text("  " + depth.format(depth=kind.starting_depth, reason=kind.depth_reason.of(language)))
    yield from _list(words.unknown_title, [said.of(language) for said in kind.unknown])


def probe_text(result: ProbeResult, words: StorageMessages, language: str) -> Iterator[RenderableType]:
    """The whole result."""
    kind = result.kind
    yield Text(words.title.format(path=result.path, label=kind.medium.label.of(language)), style="bold")
    yield Text(f"  {kind.name}")
    for line in _files(result, words):
        yield Text(f"  {line}")
    yield Text("")
    rows = list(_rows(result, words))
    yield _table(rows, words)
    yield Text("")
    for line in _how_cold(rows, words, language):
        yield Text(line, style="dim")
    yield Text("")
    yield Text(_knee(result.knee, words), style="bold")
    if result.knee.falls_beyond is not None:
        yield Text(words.knee_falls.format(depth=result.knee.falls_beyond), style="yellow")
    yield from _list(words.unknown_title, [said.of(language) for said in result.unknown])
    yield Text("")
    suggestion = result.suggestion
    said = words.next_step if suggestion.is_measured else words.next_estimate
    yield Text(said.format(depth=suggestion.io_depth, reason=suggestion.reason.of(language)))
    yield Text(words.workers.format(processors=result.num_processors))
    coupled = _coupled(result, words)
    if coupled:
        yield Text(coupled)


def probe_json(result: ProbeResult, language: str) -> dict[str, Any]:
    """One document of schema `headrace/storage/1`."""
    files, knee = result.files, result.knee
    return {
        **kind_json(result.path, result.kind, language),
        "files": {
            "num_large": files.num_large,
            "large_bytes": files.large_bytes,
            "num_small": files.num_small,
            "small_bytes": files.small_bytes,
            "examples": list(files.examples),
            "num_seen": files.num_seen,
            "is_all_seen": files.is_all_seen,
            "passed_over": dict(files.passed_over),
            "is_temporary": files.is_temporary,
        },
        "in_order": [_reading_json(reading, language) for reading in result.in_order],
        "random": [_reading_json(reading, language) for reading in result.random],
        "small_random": _reading_json(result.small_random, language),
        "warm": _reading_json(result.warm, language),
        "whole_files": [_reading_json(reading, language) for reading in result.whole_files],
        "knee": {
            "state": knee.state,
            "depth": knee.depth,
            "bytes_per_s": knee.rate,
            "gain": knee.gain,
            "falls_beyond": knee.falls_beyond,
            "noise": knee.noise,
        },
        "suggestion": {
            "io_depth": result.suggestion.io_depth,
            "is_measured": result.suggestion.is_measured,
            "reason": result.suggestion.reason.of(language),
        },
        "unknown": [said.of(language) for said in result.unknown],
        "seconds": result.seconds,
        "num_bytes": result.num_bytes,
        "num_processors": result.num_processors,
    }


def kind_json(path: str, kind: StorageKind, language: str) -> dict[str, Any]:
    """What is under a path, as the head of the document."""
    return {
        "schema": "headrace/storage/1",
        "headrace": __version__,
        "path": path,
        "kind": {
            "medium": kind.medium,
            "label": kind.medium.label.of(language),
            "name": kind.name,
            "layers": list(kind.layers),
            "evidence": list(kind.evidence),
            "starting_depth": kind.starting_depth,
            "depth_reason": kind.depth_reason.of(language),
            "is_depth_measured": kind.is_depth_measured,
            "unknown": [said.of(language) for said in kind.unknown],
        },
    }


def format_rate(bytes_per_s: float) -> str:
    """Return a rate as disks are sold: in powers of ten.

    >>> format_rate(104_857_600), format_rate(7.3e9), format_rate(49_152)
    ('105 MB/s', '7.30 GB/s', '49.2 kB/s')
    """
    for factor, unit in ((1e9, "GB/s"), (1e6, "MB/s")):
        if bytes_per_s >= 0.9995 * factor:
            return f"{three_digits(bytes_per_s / factor)} {unit}"
    return f"{three_digits(bytes_per_s / 1e3)} kB/s"


def _files(result: ProbeResult, words: StorageMessages) -> Iterator[str]:
    files = result.files
    examples = ", ".join(_tail(path) for path in files.examples)
    if files.is_temporary:
        yield words.test_file.format(size=format_bytes(files.large_bytes))
    elif files.num_large:
        yield words.large_files.format(count=files.num_large, size=format_bytes(files.large_bytes), examples=examples)
    else:
        yield words.small_files.format(count=files.num_small, size=format_bytes(files.small_bytes), examples=examples)
    if not files.is_all_seen:
        yield words.not_all_seen.format(seen=files.num_seen)
    if files.passed_over:
        reasons = [words.passed_reasons[why].format(count=count) for why, count in files.passed_over]
        yield words.passed_over.format(what=", ".join(reasons))
    yield words.took.format(size=format_bytes(result.num_bytes), seconds=format_seconds(result.seconds))


def _rows(result: ProbeResult, words: StorageMessages) -> Iterator[tuple[str, Reading]]:
    for reading in result.in_order:
        yield words.in_order.format(depth=reading.depth), reading
    if result.small_random is not None:
        size = format_bytes(result.small_random.read_bytes or 0)
        yield words.small_random.format(size=size), result.small_random
    for reading in result.random:
        yield words.random.format(size=format_bytes(reading.read_bytes or 0), depth=reading.depth), reading
    for reading in result.whole_files:
        yield words.whole_files.format(depth=reading.depth), reading
    if result.warm is not None:
        yield words.warm, result.warm


def _table(rows: list[tuple[str, Reading]], words: StorageMessages) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, title in enumerate(words.columns):
        table.add_column(title, justify="left" if place in (0, 6) else "right", no_wrap=True)
    for name, reading in rows:
        latency = reading.latency
        times = ("", "", "") if latency is None else (latency.median_s, latency.p95_s, latency.worst_s)
        table.add_row(
            name,
            format_rate(reading.bytes_per_s),
            three_digits(reading.reads_per_s),
            *(format_seconds(each) if isinstance(each, float) else each for each in times),
            Text(words.cold_states[reading.coldness], style=_STYLES[reading.coldness]),
        )
    return table


def _how_cold(rows: list[tuple[str, Reading]], words: StorageMessages, language: str) -> Iterator[str]:
    """How it is known where the bytes came from: each way once, with the rows that it holds for."""
    by_state: dict[tuple[str, str], None] = {}
    for _, reading in rows:
        by_state[words.cold_states[reading.coldness], reading.coldness_reason.of(language)] = None
    for what, how in by_state:
        yield words.cold_how.format(what=what, how=how)


def _knee(knee: Knee, words: StorageMessages) -> str:
    if knee.state is KneeState.TOO_NOISY:
        return words.knee_noisy.format(noise=format_share(knee.noise or 0.0))
    if knee.depth is None or knee.rate is None:
        return words.knee_not_measured
    facts = {"depth": knee.depth, "rate": format_rate(knee.rate), "gain": three_digits(knee.gain or 1.0)}
    if knee.state is KneeState.NOT_REACHED:
        return words.knee_not_reached.format(**facts)
    return (words.knee_one if knee.depth == 1 else words.knee_found).format(**facts)


def _coupled(result: ProbeResult, words: StorageMessages) -> str:
    """What a loader gets whose workers read, where that is less than the knee."""
    knee = result.knee
    ladder = {reading.depth: reading.bytes_per_s for reading in (result.random or result.whole_files)}
    within = [depth for depth in ladder if depth <= result.num_processors]
    if knee.depth is None or knee.rate is None or not within or knee.depth <= result.num_processors:
        return ""
    rate = ladder[max(within)] * result.num_processors / max(within)
    if rate >= 0.9 * knee.rate:
        return ""
    return words.workers_torch.format(
        depth=knee.depth,
        processors=result.num_processors,
        rate=format_rate(rate),
        share=format_share(rate / knee.rate),
    )


def _list(title: str, lines: list[str]) -> Iterator[Text]:
    if lines:
        yield Text("")
        yield Text(title)
        yield from (Text(f"  - {line}") for line in lines)


def _tail(path: str) -> str:
    printable = "".join(char if char.isprintable() else "?" for char in path)
    return printable if len(printable) <= _LONGEST_EXAMPLE else f"…{printable[1 - _LONGEST_EXAMPLE :]}"


def _reading_json(reading: Reading | None, language: str) -> dict[str, Any] | None:
    if reading is None:
        return None
    latency = reading.latency
    return {
        "depth": reading.depth,
        "read_bytes": reading.read_bytes,
        "bytes_per_s": reading.bytes_per_s,
        "rates": list(reading.rates),
        "reads_per_s": reading.reads_per_s,
        "num_reads": reading.num_reads,
        "num_bytes": reading.num_bytes,
        "seconds": reading.seconds,
        "latency": None
        if latency is None
        else {"median_s": latency.median_s, "p95_s": latency.p95_s, "worst_s": latency.worst_s},
        "coldness": reading.coldness,
        "coldness_reason": reading.coldness_reason.of(language),
        "is_direct": reading.is_direct,
        "fetched_share": reading.fetched_share,
        "processors": reading.processors,
    }
