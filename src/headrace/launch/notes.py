"""What could not be timed, as the processes of a run left it in writing."""

from __future__ import annotations

from pathlib import Path

from headrace.model import Text

FILE = "not-timed.txt"


def read_notes(directory: Path) -> tuple[Text, ...]:
    """Return a sentence for each thing that could not be timed, however many processes say so."""
    try:
        lines = (directory / FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    counts: dict[str, int] = {}
    for line in lines:
        problem = line.partition("\t")[2] or line
        counts[problem] = counts.get(problem, 0) + 1
    return tuple(
        Text("not timed, in {count} processes: {problem}", "未能计时（{count} 个进程）：{problem}").filled(
            count=count, problem=problem
        )
        for problem, count in counts.items()
    )
