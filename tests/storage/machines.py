"""Machines as text: what /proc and /sys hold there, written out as a tree of files and links.

A machine is a file of `tests/data/storage`. A line `== path` begins a file of the tree, `path -> target` is a link,
`path/` an empty folder, and `path = text` a file of one line. Paths begin with `proc/` or `sys/`; the names and the
formats are the kernel's.
"""

from __future__ import annotations

from pathlib import Path

from headrace.storage.media import StorageKind, kind_of

MACHINES = Path(__file__).parent.parent / "data" / "storage"


class Machine:
    """A tree made from such a text."""

    def __init__(self, text: str, folder: Path) -> None:
        self.root = folder
        current: list[str] | None = None
        files: dict[str, list[str]] = {}
        for line in text.splitlines():
            if line.startswith("== "):
                current = files.setdefault(line[3:].strip(), [])
            elif current is not None and line:
                current.append(line)
            elif not line:
                current = None
            elif line.startswith("#"):
                continue
            elif " -> " in line:
                path, target = line.split(" -> ")
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).symlink_to(target)
            elif " = " in line:
                path, content = line.split(" = ", 1)
                files[path] = [content]
            else:
                (folder / line.strip()).mkdir(parents=True, exist_ok=True)
        for path, lines in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text("\n".join(lines) + "\n", encoding="utf-8")

    def kind_of(self, path: str) -> StorageKind:
        return kind_of(path, root=self.root)


def load_machine(name: str, folder: Path) -> Machine:
    return Machine((MACHINES / f"{name}.txt").read_text(encoding="utf-8"), folder)
