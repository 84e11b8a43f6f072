"""`headrace watch`: attach to a training that runs already, and say what it waits for."""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.model import Count, Text, format_bytes, format_seconds, format_share

from .arguments import Commands, add_command, add_language, check_output, seconds, whole
from .terminal import EXIT_FINDINGS, EXIT_INTERRUPTED, EXIT_OK, Terminal, line, say, table_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headrace.watch import Alarm, AlertCommand, End, Look, MachineLook, Share, TrainerLook, WatchSession, WorkerLook

_DESCRIPTION = """\
Attach to a training that runs already, without preparing or disturbing it, and say which process trains, which load for
it, what each does now, and for what share of the time the training waits for data. PID may be the trainer, a worker of
it, or whatever started it (a shell, torchrun, a Slurm step); a text instead is looked for in command lines.

Python stacks come from py-spy (`pip install headrace[stacks]`), which reads them without pausing the training; without
it, or where the system does not allow it, the kernel's wait channels, system calls and open files have to do.
"""
_EPILOG = """\
examples:
  headrace watch 4711                          a live screen until ^C or the end of the training
  headrace watch 4711 --once                   five seconds, then text with a verdict
  headrace watch train.py --duration 60 --json lines of JSON, the last one with the findings
  headrace watch 4711 --memory 40GiB --stuck 30s --alert-command 'mail -s "$HEADRACE_ALARM" me'
  headrace watch 4711 --dump hung.txt          all stacks, locks and open files of a run that hangs

exit codes: 0 nothing wrong, 1 findings, 2 no such process, not permitted, or not a training, 130 interrupted
"""
_ONCE_S = 5.0  # about a hundred stacks: enough for a share within some ten percent
_MOST_WORKERS = 16
_MOST_ALARMS = 5
_STILL_S = 5.0  # from here on it is said for how long
_BAR = 24

_NOW, _BUSY = Text("now", "当前"), Text("busy", "忙碌")
_MEMORY, _READ = Text("memory", "内存"), Text("read", "读取")
_NO_WORKERS = Text("no loader workers run now", "当前没有加载 worker")
_HEADS = Text("worker,now,busy,CPU,memory,read,where", "worker,当前,忙碌,CPU,内存,读取,位置")


def add_parser(commands: Commands, shared: argparse.ArgumentParser) -> None:
    summary = "attach to a running training: what it waits for, what each worker does"
    parser = add_command(commands, shared, "watch", run, summary, description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument("target", nargs="?", metavar="PID", help="a process, or a text of its command line")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--once", action="store_true", help="watch for five seconds (or --duration) and print text")
    everything = "write all stacks, wait channels, locks and open files, to FILE or stdout, and end"
    form.add_argument("--dump", nargs="?", const="-", metavar="FILE", help=everything)
    add = parser.add_argument
    add("--json", action="store_true", help="print lines of JSON, schema headrace/watch/2")
    add("--interval", type=seconds(1), default=2.0, metavar="S", help="seconds per look (default: 2)")
    add("--duration", type=seconds(), metavar="S", help="end after so long, with a verdict")
    add("--rate", type=whole(1, 200), default=20, metavar="N", help="stacks a second and process (default: 20)")
    add("--no-stacks", action="store_true", help="use the kernel's word alone, not py-spy")
    above = "alarm above this: a share of the limit (90%%, the default) or a size of the training (40GiB)"
    add("--memory", default="90%", metavar="LINE", help=above)
    still = "alarm when a worker stands at one place for so long (default: 60s)"
    add("--stuck", type=seconds(), default=60.0, metavar="S", help=still)
    each = "run for each alarm, by a shell: HEADRACE_ALARM, _TEXT, _PID in its environment, JSON on its stdin"
    add("--alert-command", metavar="CMD", help=each)
    add_language(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    from headrace.watch import AlarmSettings, AlertCommand, MemoryLine, WatchSession, WatchSettings

    if args.target is None and args.dump not in (None, "-"):
        args.target, args.dump = args.dump, "-"  # `--dump 4711`: what looks like a file is the process
    if not args.target:
        args.parser.error("name a process, by its pid or a text of its command line")
    try:
        memory = MemoryLine.parse(args.memory)
    except ValueError as error:
        args.parser.error(str(error))
    if args.dump not in (None, "-"):
        check_output(args.dump)
    args.duration = args.duration or (_ONCE_S if args.once else None)
    settings = WatchSettings(
        interval_s=max(1.0, min(args.interval, args.duration or args.interval)),
        rate_per_s=args.rate,
        use_stacks=not args.no_stacks,
        alarms=AlarmSettings(memory=memory, stuck_s=args.stuck),
    )
    with ExitStack() as stack:
        with terminal.progress(Text(f"attaching to {args.target}", f"正在附加到 {args.target}")):
            session = stack.enter_context(WatchSession(args.target, settings))
        if args.dump is not None:
            return _dump(session, args.dump, terminal)
        command = args.alert_command
        alerts = stack.enter_context(closing(AlertCommand(command, language=args.lang))) if command else None
        return _watch(session, alerts, args, terminal)


def _dump(session: WatchSession, path: str, terminal: Terminal) -> int:
    text = session.dump()
    if path == "-":
        terminal.document(text.rstrip("\n"))
        return EXIT_OK
    Path(path).write_text(text, encoding="utf-8")
    count = Count(len(session.cast.processes))
    terminal.document(Text(f"stacks of {count:process(es)} are in {path}", f"{count} 个进程的调用栈已写入 {path}"))
    return EXIT_OK


def _watch(session: WatchSession, alerts: AlertCommand | None, args: argparse.Namespace, terminal: Terminal) -> int:
    """Send looks, as they come, to where they belong; then the verdict."""
    from headrace.reports import findings_text
    from headrace.watch import SCHEMA, History, judge

    history, look, interrupted = History(), None, False
    # the last stretch may be shorter than the others; a few milliseconds are not worth another
    ends_at_s = math.inf if args.duration is None else args.duration - 0.5

    def screen(look: Look) -> RenderableType:
        return watch_screen(look, session.target, history.alarms)

    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as on ^C: the verdict so far is worth having
        with _output(session.target, screen, args, terminal) as show:
            for look in session.looks(until=lambda: session.watched_s >= ends_at_s):
                history.add(look)
                for alarm in look.alarms:
                    if alerts is not None:
                        alerts.tell(alarm, session.target)
                show(look)
    except KeyboardInterrupt:
        interrupted = True
    findings = judge(history)
    if args.json:
        end = {"schema": SCHEMA, "event": "end", "findings": findings.as_json(args.lang)}
        terminal.document(json.dumps(end, ensure_ascii=False))
    elif look is not None:
        if args.once:
            terminal.result(screen(look))
            terminal.document("")
        for one in session.ends:
            if one.pid in session.roots:
                terminal.document(_ended(one))
        terminal.result(findings_text(findings, language=args.lang, is_verbose=terminal.verbosity > 0))
    if alerts is not None and (count := Count(alerts.num_left_out)):
        terminal.warn(Text(f"{count:alarm(s)} did not run the alert command", f"有 {count} 次警报没有执行警报命令"))
    return EXIT_INTERRUPTED if interrupted else EXIT_FINDINGS if findings.findings else EXIT_OK


@contextmanager
def _output(
    target: str, screen: Callable[[Look], RenderableType], args: argparse.Namespace, terminal: Terminal
) -> Iterator[Callable[[Look], None]]:
    """Where looks go: JSON lines, nowhere (`--once` prints the last), a live screen, or lines in a log."""

    def show_line(look: Look) -> None:
        lines = [watch_line(look), *(say(_alarm(one)) for one in look.alarms)]
        if args.json:
            lines = [json.dumps(look.as_json(args.lang), ensure_ascii=False)]
        terminal.document("\n".join(lines))
        sys.stdout.flush()

    if args.json or not (args.once or sys.stdout.isatty()):
        yield show_line
    elif args.once:
        with terminal.progress(_title(target, "…")):
            yield lambda _: None
    else:
        with terminal.live() as live:
            yield lambda look: live(screen(look))


def watch_line(look: Look) -> str:
    waits = say(Text(", waits for data", "，等待数据"))
    said = [look.at]
    said += (f"{_name(one)} {say(one.activity.value)}{waits} {_interval(one.wait)}" for one in look.trainers)
    if look.workers:
        busy = sorted(worker.busy.value for worker in look.workers)
        said.append(f"{say(_BUSY)} {format_share(busy[0])} - {format_share(busy[-1])} ({len(busy)})")
    return "  ".join(said)


def watch_screen(look: Look, target: str, alarms: Sequence[Alarm]) -> RenderableType:
    from rich.console import Group

    parts: list[RenderableType] = [line(_title(target, format_seconds(look.watched_s)), "bold")]
    for trainer in look.trainers:
        parts += ["", *_trainer(trainer)]
        workers = [worker for worker in look.workers if worker.trainer_pid == trainer.pid]
        parts.append(_workers(workers) if workers else line(_NO_WORKERS, "dim"))
    parts += ["", line(_machine(look.machine)), *(line(_ended(end)) for end in look.ended)]
    return Group(*parts, *(line(_alarm(alarm), "bold red") for alarm in alarms[-_MOST_ALARMS:]))


def _title(target: str, time: str) -> Text:
    return Text(f"watching {target} for {time}", f"已观察 {target} {time}")


def _ended(end: End) -> Text:
    how = end.text()
    return Text(f"process {end.pid} {how.en}", f"进程 {end.pid} {how.zh}")


def _alarm(alarm: Alarm) -> Text:
    return Text(f"ALARM {alarm.what.en}", f"警报：{alarm.what.zh}")


def _trainer(trainer: TrainerLook) -> Iterator[RenderableType]:
    from rich.table import Table

    yield line(_name(trainer), "bold").append(f"  {trainer.command[:100]}", style="dim")
    rates, at = trainer.rates, f"  {trainer.at}" if trainer.at is not None else ""
    usage = f"CPU {format_share(rates.cpu_share)}  {say(_MEMORY)} {format_bytes(rates.held_bytes)}"
    if rates.read_bytes_per_s is not None:
        usage += f"  {say(_READ)} {_rate(rates.read_bytes_per_s)}"
    yield line(f"  {say(_NOW)}: {_doing(trainer)}{at}  {usage}")
    if trainer.problem:
        yield line(Text(f"  no Python stacks: {trainer.problem}", f"  没有 Python 栈：{trainer.problem}"), "yellow")
    grid = Table.grid(padding=(0, 1, 0, 2))
    for activity, share in sorted(trainer.shares.items(), key=lambda one: -one[1].value):
        bar = line("█" * round(_BAR * share.value), "red" if activity.code == "data_wait" else "")
        grid.add_row(say(activity.value), _interval(share), bar)
    yield grid


def _workers(workers: Sequence[WorkerLook]) -> RenderableType:
    shown = sorted(workers, key=lambda one: (-one.same_for_s, workers.index(one)))[:_MOST_WORKERS]
    rows: list[tuple[str, ...]] = [
        (
            f"{worker.name} {worker.pid}",
            _doing(worker),
            format_share(worker.busy.value) if worker.busy.num_samples else "-",
            format_share(worker.rates.cpu_share),
            format_bytes(worker.rates.held_bytes),
            _rate(worker.rates.read_bytes_per_s),
            "" if worker.activity.code == "idle" else worker.place,
        )
        for worker in sorted(shown, key=workers.index)
    ]
    if more := Count(len(workers) - len(shown)):
        rows.append((say(Text(f"and {more:more worker(s)}", f"另有 {more} 个 worker")),))
    return table_of(_HEADS, rows, folded=dict.fromkeys(range(7)))


def _doing(process: TrainerLook | WorkerLook) -> str:
    said = say(process.activity.value)
    if process.same_for_s < _STILL_S:
        return said
    time = format_seconds(process.same_for_s)
    return f"{said} {say(Text(f'the same for {time}', f'已停留 {time}'))}"


def _rate(value: float | None) -> str:
    size = format_bytes(value or 0)
    return "-" if value is None else say(Text(f"{size}/s", f"{size}/秒"))


def _machine(machine: MachineLook) -> str:
    said = []
    if machine.cpu_share is not None:
        share = format_share(machine.cpu_share)
        said.append(Text(f"processors {share} busy", f"CPU 占用 {share}"))
    if machine.memory_used_bytes is not None and machine.memory_limit_bytes:
        used, limit = format_bytes(machine.memory_used_bytes), format_bytes(machine.memory_limit_bytes)
        name = machine.memory_source
        source = Text("the machine's", "整机") if name == "machine" else Text(name, name)
        said.append(Text(f"memory {used} of {limit} ({source.en})", f"内存 {used} / {limit}（{source.zh}）"))
    if machine.swap_in_bytes_per_s:
        rate = _rate(machine.swap_in_bytes_per_s)
        said.append(Text(f"swap-in {rate}", f"换入 {rate}"))
    if machine.pressure:
        parts = " ".join(f"{name} {format_share(share)}" for name, share in machine.pressure.items())
        said.append(Text(f"pressure {parts}", f"压力（PSI） {parts}"))
    if machine.shm_total_bytes and machine.shm_used_bytes is not None:
        used, total = format_bytes(machine.shm_used_bytes), format_bytes(machine.shm_total_bytes)
        said.append(Text(f"/dev/shm {used} of {total}", f"/dev/shm {used} / {total}"))
    for gpu in machine.gpus:
        busy, name = "-" if gpu.utilisation is None else format_share(gpu.utilisation), f"GPU {gpu.number}"
        used, total = format_bytes(gpu.used_bytes or 0), format_bytes(gpu.total_bytes or 0)
        said.append(Text(f"{name} {busy} busy, {used} of {total}", f"{name} 占用 {busy}，显存 {used} / {total}"))
    return f"{say(Text('machine', '整机'))}: {'  ·  '.join(map(say, said))}"


def _name(trainer: TrainerLook) -> str:
    rank = "" if trainer.rank is None else f" rank {trainer.rank}"
    return f"{say(Text('trainer', '训练进程'))} {trainer.pid}{rank}"


def _interval(share: Share) -> str:
    value, low, high = map(format_share, (share.value, share.low, share.high))  # with its 95 % interval
    return say(Text(f"{value} ({low} to {high})", f"{value}（{low} 到 {high}）")) if share.num_samples else "-"
