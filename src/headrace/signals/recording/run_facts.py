"""What was run, where, and how it ended: `run.json`."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

RUN_FILE = "run.json"
RUN_SCHEMA = "headrace/run/1"
_PACKAGES = (
    *("headrace", "torch", "torchvision", "torchdata", "lightning", "transformers", "accelerate", "numpy", "pillow"),
    *("opencv-python", "opencv-python-headless", "opencv-contrib-python", "h5py", "lmdb", "zarr", "psutil"),
    *("webdataset", "datasets", "monai"),
)


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """The facts of a run. Those that only its end tells are None until then, and stay None after a kill."""

    command: tuple[str, ...] = ()
    working_directory: str = ""
    host: str = ""
    kernel: str = ""
    python: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    cores: int = 0  # that this process may run on
    core_quota: float | None = None  # of them, as much as the control group allows
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None  # the least of the control groups'
    gpus: tuple[str, ...] | None = None  # None: not known here; `gpu_note` says why
    gpu_note: str = ""
    recorder_pid: int = 0
    trainer_pid: int | None = None
    start_wall_s: float = 0.0  # seconds since 1970
    start_monotonic_ns: int = 0  # the same moment on the clock of the events
    end_monotonic_ns: int | None = None
    replay_steps: int = 0  # that the training was to make on cached batches: it is not the training it would have been
    exit_code: int | None = None
    exit_signal: int | None = None
    problems: tuple[str, ...] = ()  # of the recording itself, as the recorder saw them

    @property
    def duration_s(self) -> float | None:
        """How long it ran; None where its end was not written down."""
        end_ns = self.end_monotonic_ns
        return None if end_ns is None else (end_ns - self.start_monotonic_ns) / 1e9

    @property
    def is_finished(self) -> bool:
        """Whether the recorder lived to write the end down."""
        return self.end_monotonic_ns is not None

    @property
    def shell_code(self) -> int | None:
        """How it ended, as a shell tells it: a signal is 128 and its number. None where that was not written down."""
        return 128 + self.exit_signal if self.exit_signal else self.exit_code

    @property
    def started_at(self) -> str:
        """When it began, as people and other programs read it."""
        return datetime.fromtimestamp(self.start_wall_s, UTC).isoformat(timespec="milliseconds")

    @classmethod
    def here(cls, command: Sequence[str] = ()) -> Self:
        """What can be said of this machine and this moment. Imports none of the packages whose versions it tells."""
        working_directory = ""
        with contextlib.suppress(OSError):  # it may have been removed
            working_directory = os.getcwd()
        return cls(
            command=tuple(command),
            working_directory=working_directory,
            host=os.uname().nodename,
            kernel=os.uname().release,
            python=sys.version.split()[0],
            versions=_versions(),
            cores=len(os.sched_getaffinity(0)),
            recorder_pid=os.getpid(),
            start_wall_s=time.time(),
            start_monotonic_ns=time.monotonic_ns(),
        )

    def as_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"schema": RUN_SCHEMA, "started_at": self.started_at, **asdict(self)}
        return {**document, "duration_s": self.duration_s}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read what `as_json` wrote. Fields that are unknown to this version are passed over."""
        known = {one.name for one in fields(cls)}
        told: dict[str, Any] = {name: value for name, value in document.items() if name in known}
        return cls(**(told | {name: tuple(value) for name, value in told.items() if isinstance(value, list)}))


def write_facts(path: Path, facts: RunFacts) -> None:
    """Write `run.json`, whole or not at all: whoever reads sees the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        text = json.dumps(facts.as_json(), indent=1, ensure_ascii=False) + "\n"
        temporary.write_bytes(text.encode("utf-8", "backslashreplace"))  # an argument need not be Unicode
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _versions() -> dict[str, str]:
    from importlib import metadata

    found = {}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    found.setdefault("headrace", getattr(sys.modules.get("headrace"), "__version__", "unknown"))
    return found
