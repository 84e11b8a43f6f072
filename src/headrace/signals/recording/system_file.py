"""`system.jsonl`: one look at the system a line. The first line names the fields, the others hold values alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..system import (
    CpuGroupSample,
    DiskSample,
    GpuSample,
    MachineSample,
    MemoryGroupSample,
    PressureSample,
    ProcessSample,
    SystemSample,
)
from .event_file import AppendedFile
from .frames import dump_json
from .thinning import rationed_rate

SYSTEM_SCHEMA = "headrace/system/1"

_ROWS: Mapping[str, type[Any]] = {
    "processes": ProcessSample,
    "disks": DiskSample,
    "pressures": PressureSample,
    "memory_groups": MemoryGroupSample,
    "cpu_groups": CpuGroupSample,
    "gpus": GpuSample,
}


class SystemFile:
    """Writes samples; past a quarter of its limit it takes them less often."""

    def __init__(self, path: Path, *, limit_bytes: int, start_s: float, interval_s: float) -> None:
        self._file = AppendedFile(path)
        self._file.append(dump_json(_header()) + b"\n")
        self._limit_bytes, self._start_s, self._interval_s = limit_bytes, start_s, interval_s
        self._due_s = start_s
        self._longest_interval_s = interval_s

    @property
    def problems(self) -> list[str]:
        found = self._file.problems
        if self._longest_interval_s > self._interval_s:
            found.append(
                f"the system was sampled less often towards the end, every {self._longest_interval_s:.3g} s, "
                f"to keep system.jsonl under {self._limit_bytes >> 20} MiB"
            )
        return found

    def is_due(self, now_s: float) -> bool:
        return now_s >= self._due_s

    def write(self, sample: SystemSample, *, now_s: float) -> None:
        line = line_of(sample)
        rate = rationed_rate(
            limit_bytes=self._limit_bytes, written_bytes=self._file.num_bytes, elapsed_s=now_s - self._start_s
        )
        interval_s = self._interval_s if rate is None else max(self._interval_s, len(line) / max(rate, 1e-9))
        self._longest_interval_s = max(self._longest_interval_s, interval_s)
        # a little before a whole interval: drains and samples beat in the same rhythm
        self._due_s = now_s + 0.9 * interval_s
        if rate is None or self._file.num_bytes + len(line) < self._limit_bytes:
            self._file.append(line)

    def close(self) -> None:
        self._file.close()


def _header() -> dict[str, Any]:
    fields = {name: list(kind._fields) for name, kind in _ROWS.items()}
    return {"schema": SYSTEM_SCHEMA, "fields": {**fields, "machine": list(MachineSample._fields)}}


def line_of(sample: SystemSample) -> bytes:
    """A sample's line, with its end. What is empty is left out."""
    document: dict[str, Any] = {"at_ns": sample.at_ns}
    if sample.machine is not None:
        document["machine"] = sample.machine
    for name in _ROWS:
        rows = getattr(sample, name)
        if rows or (rows is not None and name == "gpus"):
            document[name] = rows
    return dump_json(document) + b"\n"


def read_samples(data: bytes) -> tuple[list[SystemSample], list[str]]:
    """Read a file of samples: those that can be read, and what was wrong with the others."""
    lines = data.split(b"\n")
    torn = lines.pop()
    samples: list[SystemSample] = []
    damaged: list[int] = []
    readers: Mapping[str, Callable[[list[Any]], Any]] | None = None
    for number, line in enumerate(lines, 1):
        try:
            document = json.loads(line)
            if "fields" in document:
                if document.get("schema") != SYSTEM_SCHEMA:
                    return [], [f"system.jsonl is of another kind or version: {document.get('schema')!r}"]
                readers = _readers(document["fields"])
            elif readers is not None:
                samples.append(_sample(document, readers))
            else:
                damaged.append(number)
        except (ValueError, TypeError, KeyError, AttributeError):
            damaged.append(number)
    problems = []
    if damaged:
        problems.append(f"system.jsonl: {len(damaged)} lines cannot be read, the first is line {damaged[0]}")
    if torn:
        problems.append(f"system.jsonl: its last line is cut off after {len(torn)} bytes")
    return samples, problems


def _sample(document: dict[str, Any], readers: Mapping[str, Callable[[list[Any]], Any]]) -> SystemSample:
    def rows(name: str) -> tuple[Any, ...]:
        return tuple(map(readers[name], document.get(name, ())))

    machine = document.get("machine")
    return SystemSample(
        at_ns=int(document["at_ns"]),
        machine=None if machine is None else readers["machine"](machine),
        processes=rows("processes"),
        disks=rows("disks"),
        pressures=rows("pressures"),
        memory_groups=rows("memory_groups"),
        cpu_groups=rows("cpu_groups"),
        gpus=rows("gpus") if "gpus" in document else None,
    )


def _readers(fields: Mapping[str, list[str]]) -> dict[str, Callable[[list[Any]], Any]]:
    kinds: dict[str, type[NamedTuple]] = {**_ROWS, "machine": MachineSample}
    return {name: _reader(kind, fields[name]) for name, kind in kinds.items()}


def _reader(kind: type[Any], written: Iterable[str]) -> Callable[[list[Any]], Any]:
    """A row's values by the names they were written under: versions may add fields, and drop some."""
    places = {name: place for place, name in enumerate(written)}
    wanted = [places.get(name) for name in kind._fields]
    if wanted == list(range(len(wanted))) and len(places) == len(wanted):
        return kind._make  # type: ignore[no-any-return]

    def read(values: list[Any]) -> Any:
        return kind._make(None if place is None else values[place] for place in wanted)

    return read
