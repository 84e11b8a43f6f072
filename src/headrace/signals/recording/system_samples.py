"""Looks at the system around a training, and `system.jsonl`: first the names of the fields, then a look a line."""

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..system import (
    CpuGroupSample,
    DiskSample,
    GpuReader,
    GpuSample,
    MachineSample,
    MemoryGroupSample,
    PressureSample,
    ProcessSample,
    ProcessTree,
    SystemSample,
    cpu_groups,
    find_disks,
    memory_groups,
    read_disks,
    read_machine,
    read_pressures,
    read_quotas,
    sample_groups,
)
from .event_file import AppendedFile, dump_json
from .run_facts import RunFacts
from .thinning import rationed_rate

SYSTEM_FILE = "system.jsonl"
SYSTEM_SCHEMA = "headrace/system/1"

_ROWS: Mapping[str, type[Any]] = {
    "processes": ProcessSample,
    "disks": DiskSample,
    "pressures": PressureSample,
    "memory_groups": MemoryGroupSample,
    "cpu_groups": CpuGroupSample,
    "gpus": GpuSample,
}
_KINDS: Mapping[str, type[Any]] = {**_ROWS, "machine": MachineSample}
_GROUPS_EVERY_S = 10.0  # a launcher may put the training into another group after it started


class SystemSampler:
    """Looks at a process, all below it, and what limits them. Owns no thread."""

    def __init__(self, pid: int, *, root: Path = Path("/"), gpus: bool = True) -> None:
        self._root = root
        self._tree = ProcessTree(pid, root=root)
        self._gpus = GpuReader() if gpus else None
        self._disks = find_disks(root)
        self._find_groups()

    def watch(self, pid: int) -> None:
        """Look at another process from now on."""
        self._tree = ProcessTree(pid, root=self._root)
        self._groups_due_s = 0.0

    def sample(self) -> SystemSample:
        """Look once. Whatever cannot be read is missing from the sample; nothing is raised for it."""
        now_s = time.monotonic()
        if now_s >= self._groups_due_s:
            self._find_groups()
        return SystemSample(
            at_ns=time.monotonic_ns(),
            machine=read_machine(self._root),
            processes=self._tree.sample(),
            disks=read_disks(self._disks, self._root),
            pressures=read_pressures(("cpu", "memory", "io"), self._groups, self._root),
            memory_groups=sample_groups(self._groups),
            cpu_groups=read_quotas(self._cpu_groups),
            gpus=self._gpus.sample() if self._gpus is not None else None,
        )

    def complete(self, facts: RunFacts) -> RunFacts:
        """Add to a run's facts what a look at this machine tells, where they do not say it."""
        machine = read_machine(self._root)
        limits = [one.limit_bytes for one in sample_groups(self._groups) if one.limit_bytes is not None]
        quotas = [one.quota_cores for one in read_quotas(self._cpu_groups) if one.quota_cores is not None]
        return replace(
            facts,
            memory_bytes=facts.memory_bytes or (machine.total_bytes if machine else None),
            memory_limit_bytes=facts.memory_limit_bytes or min(limits, default=None),
            core_quota=facts.core_quota or min(quotas, default=None),
            gpus=facts.gpus or (self._gpus.names if self._gpus is not None else None),
            gpu_note=facts.gpu_note or (self._gpus.note if self._gpus is not None else ""),
        )

    def close(self) -> None:
        if self._gpus is not None:
            self._gpus.close()

    def _find_groups(self) -> None:
        pid = self._tree.pid if os.path.exists(f"{self._root}/proc/{self._tree.pid}") else None
        self._groups = memory_groups(self._root, pid=pid)
        self._cpu_groups = cpu_groups(self._root, pid=pid)
        self._groups_due_s = time.monotonic() + _GROUPS_EVERY_S


class SystemFile(AppendedFile):
    """Writes samples; past a quarter of its limit it takes them less often."""

    def __init__(self, path: Path, *, limit_bytes: int, start_s: float, interval_s: float) -> None:
        super().__init__(path)
        fields = {name: list(kind._fields) for name, kind in _KINDS.items()}
        self.append(dump_json({"schema": SYSTEM_SCHEMA, "fields": fields}) + b"\n")
        self._limit_bytes, self._start_s, self._interval_s = limit_bytes, start_s, interval_s
        self._due_s = start_s
        self._longest_interval_s = interval_s

    @property
    def problems(self) -> list[str]:
        found = super().problems
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
            limit_bytes=self._limit_bytes, written_bytes=self.num_bytes, elapsed_s=now_s - self._start_s
        )
        interval_s = self._interval_s if rate is None else max(self._interval_s, len(line) / max(rate, 1e-9))
        self._longest_interval_s = max(self._longest_interval_s, interval_s)
        # a little before a whole interval: drains and samples beat in the same rhythm
        self._due_s = now_s + 0.9 * interval_s
        if rate is None or self.num_bytes + len(line) < self._limit_bytes:
            self.append(line)


def line_of(sample: SystemSample) -> bytes:
    """A sample's line, with its end. What is empty is left out."""
    parts = {name: getattr(sample, name) for name in ("machine", *_ROWS)}
    told = {name: part for name, part in parts.items() if part or (part is not None and name == "gpus")}
    return dump_json({"at_ns": sample.at_ns, **told}) + b"\n"


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
                readers = {name: _reader(kind, document["fields"][name]) for name, kind in _KINDS.items()}
            elif readers is not None:
                rows = {name: tuple(map(readers[name], document[name])) for name in _ROWS if name in document}
                machine = readers["machine"](document["machine"]) if "machine" in document else None
                samples.append(SystemSample(at_ns=int(document["at_ns"]), machine=machine, **rows))
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


def _reader(kind: type[Any], written: Iterable[str]) -> Callable[[list[Any]], Any]:
    """A row's values by the names they were written under: versions may add fields, and drop some."""
    places = {name: place for place, name in enumerate(written)}
    wanted = [places.get(name) for name in kind._fields]
    return lambda values: kind._make(None if place is None else values[place] for place in wanted)
