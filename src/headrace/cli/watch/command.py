"""`headrace watch`: attach to a training that runs already, and say what it waits for."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from ..arguments import add_language, language_of, seconds, whole
from ..exits import EXIT_FINDINGS, EXIT_INTERRUPTED, EXIT_OK
from ..terminal import Terminal
from . import messages as words

if TYPE_CHECKING:
    from headrace.model import Findings
    from headrace.watch import Alarm, AlertCommand, History, Look, WatchSession

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


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser = commands.add_parser(
        "watch",
        parents=[shared],
        help="attach to a running training: what it waits for, what each worker does",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", nargs="?", metavar="PID", help="a process, or a text of its command line")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--once", action="store_true", help="watch for five seconds (or --duration) and print text")
    form.add_argument(
        "--dump",
        nargs="?",
        const="-",
        metavar="FILE",
        help="write all stacks, wait channels, locks and open files, to FILE or stdout, and end",
    )
    parser.add_argument("--json", action="store_true", help="print lines of JSON, schema headrace/watch/1")
    parser.add_argument("--interval", type=seconds(), default=2.0, metavar="S", help="seconds per look (default: 2)")
    parser.add_argument("--duration", type=seconds(), metavar="S", help="end after so long, with a verdict")
    parser.add_argument(
        "--rate", type=whole(1, 200), default=20, metavar="N", help="stacks a second and process (default: 20)"
    )
    parser.add_argument("--no-stacks", action="store_true", help="use the kernel's word alone, not py-spy")
    parser.add_argument(
        "--memory",
        default="90%",
        metavar="LINE",
        help="alarm above this: a share of the limit (90%%, the default) or a size of the training (40GiB)",
    )
    parser.add_argument(
        "--stuck",
        type=seconds(),
        default=60.0,
        metavar="S",
        help="alarm when a worker stands at one place for so long (default: 60s)",
    )
    parser.add_argument(
        "--alert-command",
        metavar="CMD",
        help="run for each alarm, by a shell: HEADRACE_ALARM, _TEXT, _PID in its environment, JSON on its stdin",
    )
    add_language(parser)
    parser.set_defaults(run=lambda args, terminal: run(parser, args, terminal))


def run(parser: argparse.ArgumentParser, args: argparse.Namespace, terminal: Terminal) -> int:
    """Watch, and print what was seen."""
    from headrace.watch import AlarmSettings, AlertCommand, History, MemoryLine, WatchSession, WatchSettings

    language = language_of(args)
    if args.target is None and args.dump not in (None, "-"):
        args.target, args.dump = args.dump, "-"  # `--dump 4711`: what looks like a file is the process
    if not args.target:
        parser.error("name a process, by its pid or a text of its command line")
    if args.interval < 1:
        parser.error("--interval is at least 1 second")
    try:
        line = MemoryLine.parse(args.memory)
    except ValueError as error:
        parser.error(str(error))
    duration_s = args.duration or (_ONCE_S if args.once else None)
    settings = WatchSettings(
        interval_s=min(args.interval, duration_s or args.interval) if duration_s is None or duration_s >= 1 else 1.0,
        rate_per_s=args.rate,
        use_stacks=not args.no_stacks,
        alarms=AlarmSettings(memory=line, stuck_s=args.stuck),
    )
    with ExitStack() as stack:
        with terminal.progress(words.ATTACHING.filled(target=args.target).of(language)):
            session = stack.enter_context(WatchSession(args.target, settings))
        if args.dump is not None:
            return _dump(session, args.dump, language, terminal)
        alerts = (
            stack.enter_context(AlertCommand(args.alert_command, language=language)) if args.alert_command else None
        )
        watch = _Watch(session, History(), alerts, language, terminal, is_json=args.json)
        return watch.run(duration_s, is_once=args.once)


def _dump(session: WatchSession, path: str, language: str, terminal: Terminal) -> int:
    from headrace.errors import UnusableInput
    from headrace.watch import dump_run

    text = dump_run(session.cast)
    if path == "-":
        terminal.document(text.rstrip("\n"))
        return EXIT_OK
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UnusableInput(
            f"{path} cannot be written", reason=error.strerror, next_step="--dump FILE elsewhere"
        ) from None
    terminal.document(words.DUMPED.filled(count=len(session.cast.processes), path=path).of(language))
    return EXIT_OK


class _Watch:
    """One run of the command: looks, as they come, to where they belong."""

    def __init__(
        self,
        session: WatchSession,
        history: History,
        alerts: AlertCommand | None,
        language: str,
        terminal: Terminal,
        *,
        is_json: bool,
    ) -> None:
        self._session, self._history, self._alerts = session, history, alerts
        self._language, self._terminal, self._is_json = language, terminal, is_json
        self._alarms: list[Alarm] = []
        self._last: Look | None = None

    def run(self, duration_s: float | None, *, is_once: bool) -> int:
        interrupted = False
        # the last stretch may be shorter than the others; a few milliseconds are not worth another
        ends_at_s = None if duration_s is None else duration_s - 0.5

        def is_over() -> bool:
            return ends_at_s is not None and self._session.watched_s >= ends_at_s

        try:
            with _ended_by_sigterm(), self._output(is_quiet=is_once) as show:
                for look in self._session.looks(until=is_over):
                    self._take(look)
                    show(look)
        except KeyboardInterrupt:
            interrupted = True
        return self._finish(is_once=is_once, interrupted=interrupted)

    def _take(self, look: Look) -> None:
        self._history.add(look)
        self._last = look
        for alarm in look.alarms:
            self._alarms.append(alarm)
            if self._alerts is not None:
                self._alerts.tell(alarm, self._session.target)

    @contextmanager
    def _output(self, *, is_quiet: bool) -> Iterator[Callable[[Look], None]]:
        """Where looks go: JSON lines, nowhere (`--once` prints the last), a live screen, or lines in a log."""
        from .text import watch_line, watch_screen

        if self._is_json:
            yield lambda look: self._json(look.as_json(self._language))
        elif is_quiet:
            with self._terminal.progress(words.TITLE.filled(target=self._session.target, time="…").of(self._language)):
                yield lambda _: None
        elif sys.stdout.isatty():
            with self._terminal.live() as live:
                yield lambda look: live(watch_screen(look, self._session.target, self._language, self._alarms))
        else:
            yield lambda look: self._log(look, watch_line(look, self._language))

    def _log(self, look: Look, line: str) -> None:
        self._terminal.document(line)
        for alarm in look.alarms:
            self._terminal.document(words.ALARM.filled(what=alarm.what.of(self._language)).of(self._language))
        sys.stdout.flush()

    def _json(self, document: dict[str, object]) -> None:
        self._terminal.document(json.dumps(document, ensure_ascii=False))
        sys.stdout.flush()

    def _finish(self, *, is_once: bool, interrupted: bool) -> int:
        from headrace.watch import SCHEMA as WATCH_SCHEMA
        from headrace.watch import judge

        findings = judge(self._history, self._session.settings.alarms)
        if self._is_json:
            self._json({"schema": WATCH_SCHEMA, "event": "end", "findings": findings.as_json(self._language)})
        elif self._last is not None:
            self._print_end(findings, is_once=is_once)
        if self._alerts is not None and self._alerts.num_left_out:
            self._terminal.warn(words.ALERTS_LEFT_OUT.filled(count=self._alerts.num_left_out).of(self._language))
        if interrupted:
            return EXIT_INTERRUPTED
        return EXIT_FINDINGS if findings.findings else EXIT_OK

    def _print_end(self, findings: Findings, *, is_once: bool) -> None:
        from headrace.reports import findings_text

        from .text import watch_screen

        if is_once and self._last is not None:
            self._terminal.result(watch_screen(self._last, self._session.target, self._language, self._alarms))
            self._terminal.document("")
        for end in self._session.ends:
            if end.pid in self._session.roots:
                said = words.ENDED.filled(pid=end.pid, how=end.text().of(self._language))
                self._terminal.document(said.of(self._language))
        self._terminal.result(findings_text(findings, language=self._language))


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """End as on ^C when somebody ends us politely: the verdict so far is still worth having."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
