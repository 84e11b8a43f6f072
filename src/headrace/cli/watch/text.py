"""A look of `headrace watch` as a screen: the same parts for `--once`, for a live screen and for a line in a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.model import format_bytes, format_seconds, format_share
from headrace.watch import ACTIVITIES, DOING, Alarm, Look, MachineLook, Share, TrainerLook, WorkerActivity, WorkerLook

from . import messages as words

if TYPE_CHECKING:
    from rich.console import RenderableType

_MOST_WORKERS = 16
_MOST_ALARMS = 5
_STILL_S = 5.0  # from here on it is said for how long
_BAR = 24


def watch_screen(look: Look, target: str, language: str, alarms: Sequence[Alarm] = ()) -> RenderableType:
    """Return one look as something that rich prints."""
    from rich.console import Group
    from rich.text import Text as Line

    title = words.TITLE.filled(target=target, time=format_seconds(look.watched_s)).of(language)
    parts: list[RenderableType] = [Line(title, style="bold")]
    for trainer in look.trainers:
        parts += [Line(""), *_trainer(trainer, language)]
        workers = [worker for worker in look.workers if worker.trainer_pid == trainer.pid]
        parts.append(_workers(workers, language) if workers else Line(words.NO_WORKERS.of(language), style="dim"))
    parts += [Line(""), Line(_machine(look.machine, language))]
    for end in look.ended:
        parts.append(Line(words.ENDED.filled(pid=end.pid, how=end.text().of(language)).of(language)))
    for alarm in (alarms or look.alarms)[-_MOST_ALARMS:]:
        parts.append(Line(words.ALARM.filled(what=alarm.what.of(language)).of(language), style="bold red"))
    return Group(*parts)


def watch_line(look: Look, language: str) -> str:
    """Return one look as a line for a log."""
    comma = "，" if language == "zh" else ", "
    said = [look.at]
    said += [
        f"{_name(trainer, language)} {ACTIVITIES[trainer.reading.activity].of(language)}{comma}"
        f"{words.WAITS.of(language)} {interval(trainer.wait, language)}"
        for trainer in look.trainers
    ]
    if look.workers:
        busy = sorted(worker.busy.value for worker in look.workers)
        said.append(f"{words.BUSY.of(language)} {format_share(busy[0])} - {format_share(busy[-1])} ({len(busy)})")
    return "  ".join(said)


def _trainer(trainer: TrainerLook, language: str) -> Iterator[RenderableType]:
    from rich.text import Text as Line

    reading = trainer.reading
    head = Line(_name(trainer, language), style="bold")
    head.append(f"  {trainer.command[:100]}", style="dim")
    yield head
    at = f"  {reading.at}" if reading.at is not None else ""
    usage = "  ".join(_usage(trainer, language))
    yield Line(f"  {words.NOW.of(language)}: {ACTIVITIES[reading.activity].of(language)}{at}  {usage}")
    if trainer.same_for_s >= _STILL_S and reading.activity.value != "compute":
        yield Line(f"  {words.STILL.filled(time=format_seconds(trainer.same_for_s)).of(language)}", style="yellow")
    if trainer.problem:
        yield Line(f"  {words.NO_STACKS.filled(problem=trainer.problem).of(language)}", style="yellow")
    yield _bars(trainer, language)


def _bars(trainer: TrainerLook, language: str) -> RenderableType:
    from rich.table import Table
    from rich.text import Text as Line

    grid = Table.grid(padding=(0, 1, 0, 2))
    for activity, share in sorted(trainer.shares.items(), key=lambda one: -one[1].value):
        style = "red" if activity.value == "data_wait" and share.value >= 0.25 else ""
        bar = Line("█" * round(_BAR * share.value), style=style)
        grid.add_row(ACTIVITIES[activity].of(language), interval(share, language), bar)
    return grid


def _workers(workers: Sequence[WorkerLook], language: str) -> RenderableType:
    from rich.table import Table

    shown = sorted(workers, key=lambda one: (-one.same_for_s, workers.index(one)))[:_MOST_WORKERS]
    shown.sort(key=workers.index)
    table = Table(box=None, padding=(0, 1, 0, 1), pad_edge=False)
    for heading in (words.WORKER, words.NOW, words.BUSY, words.CPU, words.MEMORY, words.READ, words.WHERE):
        table.add_column(heading.of(language), overflow="fold", justify="left")
    for worker in shown:
        table.add_row(
            f"{worker.name} {worker.pid}",
            _doing(worker, language),
            format_share(worker.busy.value) if worker.busy.num_samples else "-",
            format_share(worker.rates.cpu_share),
            format_bytes(_held(worker)),
            _rate(worker.rates.read_bytes_per_s, language),
            _where(worker),
        )
    if len(workers) > len(shown):
        table.add_row(words.MORE_WORKERS.filled(count=len(workers) - len(shown)).of(language))
    return table


def _doing(worker: WorkerLook, language: str) -> str:
    said = DOING[worker.activity].of(language)
    if worker.same_for_s >= _STILL_S and worker.activity is not WorkerActivity.IDLE:
        said += " " + words.STILL.filled(time=format_seconds(worker.same_for_s)).of(language)
    return said


def _where(worker: WorkerLook) -> str:
    parts = [str(worker.at)] if worker.at is not None and worker.activity is not WorkerActivity.IDLE else []
    if not parts and worker.activity is not WorkerActivity.IDLE:
        parts += [part for part in (worker.standing.call, worker.standing.wait_channel) if part][:1]
    if worker.standing.file:
        parts.append(worker.standing.file)
    return "  ".join(parts)


def _usage(trainer: TrainerLook, language: str) -> Iterator[str]:
    yield f"{words.CPU.of(language)} {format_share(trainer.rates.cpu_share)}"
    yield f"{words.MEMORY.of(language)} {format_bytes(_held(trainer))}"
    if trainer.rates.read_bytes_per_s is not None:
        yield f"{words.READ.of(language)} {_rate(trainer.rates.read_bytes_per_s, language)}"


def _held(process: TrainerLook | WorkerLook) -> int:
    return process.rates.rss_bytes if process.rates.pss_bytes is None else process.rates.pss_bytes


def _rate(value: float | None, language: str) -> str:
    return "-" if value is None else words.PER_S.filled(size=format_bytes(value)).of(language)


def _machine(machine: MachineLook, language: str) -> str:
    said = []
    if machine.cpu_share is not None:
        said.append(words.CPUS.filled(share=format_share(machine.cpu_share)).of(language))
    if machine.memory_used_bytes is not None and machine.memory_limit_bytes:
        source = words.MEMORY_SOURCES.get(machine.memory_source)
        text = words.USED.filled(
            used=format_bytes(machine.memory_used_bytes),
            limit=format_bytes(machine.memory_limit_bytes),
            source=source.of(language) if source else machine.memory_source,
        )
        said.append(text.of(language))
    if machine.swap_in_bytes_per_s:
        said.append(words.SWAP.filled(rate=_rate(machine.swap_in_bytes_per_s, language)).of(language))
    if machine.pressure:
        parts = " ".join(f"{name} {format_share(share)}" for name, share in machine.pressure.items())
        said.append(words.PRESSURE.filled(parts=parts).of(language))
    if machine.shm_total_bytes and machine.shm_used_bytes is not None:
        used, total = format_bytes(machine.shm_used_bytes), format_bytes(machine.shm_total_bytes)
        said.append(words.SHM.filled(used=used, total=total).of(language))
    for gpu in machine.gpus:
        text = words.GPU.filled(
            index=gpu.index,
            share="-" if gpu.busy_share is None else format_share(gpu.busy_share),
            used=format_bytes(gpu.used_bytes or 0),
            total=format_bytes(gpu.total_bytes or 0),
        )
        said.append(text.of(language))
    return f"{words.MACHINE.of(language)}: {'  ·  '.join(said)}"


def _name(trainer: TrainerLook, language: str) -> str:
    rank = "" if trainer.rank is None else f" {words.RANK.filled(rank=trainer.rank).of(language)}"
    return f"{words.TRAINER.of(language)} {trainer.pid}{rank}"


def interval(share: Share, language: str) -> str:
    """Return a share with its 95 % interval."""
    if not share.num_samples:
        return "-"
    values = {"share": format_share(share.value), "low": format_share(share.low), "high": format_share(share.high)}
    return words.INTERVAL.filled(**values).of(language)
