"""`headrace run`: a training script as it is, timed, and why it waits."""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import UnusableInput
from headrace.model import EventKind, Text, feed_mode, feeds_random, format_seconds, profile_name

from .arguments import Commands, add_command, add_language, check_output, whole
from .terminal import EXIT_FINDINGS, EXIT_OK, Terminal, say

if TYPE_CHECKING:
    from headrace.launch import Ended
    from headrace.model import Findings
    from headrace.signals.recording import Recording, RunFacts

_DESCRIPTION = """\
Run a training script unchanged and say at the end where its time went and why it waits: verdict, evidence, what helps,
what cannot. Every process that it starts is reached (workers, ranks of torchrun or accelerate). The script keeps its
output, its exit code, its signals and its terminal; our report goes to stderr, and a recording into a directory.
"""
_EPILOG = """\
examples:
  headrace run train.py --epochs 3
  headrace run -m package.train --epochs 3
  headrace run --out runs/first -- torchrun --nproc_per_node 4 train.py
  headrace run --json why.json --lang zh -- accelerate launch train.py
  headrace run --replay train.py                    how fast with a perfect loader? (changes the training)
  headrace run --feed train.py                      let our workers feed its DataLoaders
  headrace run --report headrace-runs/train-…       the report of a run directory, also after a crash

The exit code is the script's own; of --report it is 0 without findings and 1 with some.
"""
_REPLAY_STEPS = 64  # some rounds over eight kept batches; a second or two of most trainings
_LINE_EVERY_S = 5.0
_SAVE, _RESTORE = "\x1b7", "\x1b8"  # where the cursor is
_FEWEST_ROWS = 4


def add_parser(commands: Commands, shared: argparse.ArgumentParser) -> None:
    summary = "run a training script unchanged, and say why it waits"
    usage = "headrace run [options] (train.py | -m module | -- command) [args ...]"
    parser = add_command(commands, shared, "run", run, summary, usage=usage, description=_DESCRIPTION, epilog=_EPILOG)
    add = parser.add_argument
    add("--out", metavar="DIR", help="where the recording goes (default: headrace-runs/NAME-TIME in this folder)")
    add("--json", metavar="FILE", help="write the findings there, schema headrace/findings/1")
    live = "a status line while it runs: at the bottom of a terminal, else on stderr every few seconds"
    add("--live", action="store_true", help=live)
    add_language(parser, of="report")
    replay = (
        f"measure the ceiling: after some steps the training gets cached batches for {_REPLAY_STEPS} steps. This "
        "changes the training: throw its weights away"
    )
    add("--replay", action="store_true", help=replay)
    add("--replay-steps", type=whole(16), metavar="N", help="the same, for N steps (at least 16)")
    feed = "let our workers feed the script's torch DataLoaders, where its batches stay the same (or HEADRACE_FEED=1)"
    add("--feed", action="store_const", const="1", help=feed)
    measure = "the same after a stretch with torch's workers: the waits of both are shown (or HEADRACE_FEED=measure)"
    add("--feed=measure", dest="feed", action="store_const", const="measure", help=measure)
    tune = "ours, and the number of its workers adjusts itself while it runs (or HEADRACE_FEED=tune)"
    add("--feed=tune", dest="feed", action="store_const", const="tune", help=tune)
    named = "of --feed: settings by name, as DataLoader(profile=NAME) has them (or HEADRACE_PROFILE)"
    add("--profile", metavar="NAME", help=named)
    random = "feed also where samples draw random numbers: they get others than torch's workers would give them"
    add("--feed-random", action="store_true", help=random)
    kept = "torch's workers keep the memory that they free: fewer page faults, up to a batch of samples more in each"
    add("--malloc", choices=("keep",), help=kept)
    bound = "threads of OpenMP, OpenCV, BLAS and torch in each of torch's workers"
    add("--worker-threads", type=whole(1, 1024), metavar="N", help=bound)
    add("--files", choices=("max",), help="raise the limit on open files to the hard one")
    report = "run nothing: report on a run directory, also one that a crash left or of monitor"
    add("--report", metavar="DIR", help=report)
    add("-m", dest="module", metavar="module", nargs=argparse.REMAINDER, help="run a module")
    add("command", nargs=argparse.REMAINDER, help="a script and its arguments, or -- and any command")


def misplaced(words: Sequence[str], unknown: Sequence[str]) -> UnusableInput:
    """Return the error that says where options of the script belong, which stand before its name."""
    at = words.index(unknown[0])
    script = next(
        (n for n in range(at, len(words)) if words[n].endswith(".py") or words[n] in ("-m", "--")), len(words)
    )
    corrected = shlex.join(["headrace", *words[:at], *(words[script:] or ["train.py"]), *words[at:script]])
    next_step = f"`{corrected}`: options of the script come behind its name"
    return UnusableInput(f"headrace run has no option {' '.join(unknown)}", next_step=next_step)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    from headrace.launch import command_of, new_run_directory, run_recorded

    if args.json == "-":
        raise UnusableInput("--json - would write into the script's stdout", next_step="--json why.json, a file")
    if args.report:
        return _report_on(args, terminal)
    command, name = command_of(args.command, module=args.module)
    directory = Path(args.out) if args.out else new_run_directory(name)
    if args.json and directory.resolve() not in Path(args.json).resolve().parents:  # which is made when it starts
        check_output(args.json)
    display = Display(terminal) if args.live else None
    replay_steps = args.replay_steps or (_REPLAY_STEPS if args.replay else 0)
    if replay_steps:  # also with -q: it changes the training, and nobody should learn of that later
        changes = Text(
            f"--replay changes this training: after 16 steps it gets {replay_steps} steps on batches that it has seen "
            "already. Use the run for its figures, not for its weights",
            f"--replay 会改变这次训练：16 步之后，有 {replay_steps} 步用的是已经见过的 batch。"
            "这次运行只用来看数字，不要保留它的权重",
        )
        terminal.aside(f"headrace: {say(changes)}")
    feed = args.feed or ("1" if args.feed_random and not feed_mode() else feed_mode())
    _check_feed(feed, replay_steps, args.profile)
    environment = {
        "HEADRACE_FEED": feed or "0",
        "HEADRACE_FEED_RANDOM": str(int(args.feed_random or feeds_random())),
        "HEADRACE_PROFILE": args.profile or profile_name() or "",
        **_gains(args, terminal),
    }
    with closing(display) if display is not None else nullcontext():
        ended = run_recorded(
            command,
            directory,
            environment=environment,
            replay_steps=replay_steps,
            observer=display.observe if display is not None else None,
            tick=display.tick if display is not None else load_report,
        )
    try:
        _report(args, terminal, directory, ended)
    except Exception as error:  # whatever happens to the report, the script's end is what counts
        failed = Text(
            f"the report failed: {error}; the recording is in {directory}",
            f"报告生成失败：{error}；录制保存在 {directory}",
        )
        with suppress(OSError):  # stderr may be what cannot be written
            traceback.print_exc()
            terminal.warn(failed)
    return ended.end_likewise()


def _check_feed(feed: str, replay_steps: int, profile: str | None) -> None:
    if feed not in ("", "1", "measure", "tune"):
        raise UnusableInput(f"nothing is known of feeding by {feed!r}", next_step="--feed, --feed=measure, --feed=tune")
    if profile is not None:
        from headrace.loader import resolve_settings

        if not feed:
            raise UnusableInput("--profile is of --feed", next_step=f"headrace run --feed --profile {profile}")
        resolve_settings(profile)  # one that nobody knows is told now
    if feed and replay_steps:
        next_step = "one after the other: --feed first, then --replay without it"
        raise UnusableInput("--feed and --replay do not go together: cached batches need nobody", next_step=next_step)


_KEPT = Text(
    "--malloc keep: torch's workers keep the pages of memory that they free",
    "--malloc keep：torch 的 worker 保留释放的内存页",
)
_THREADS = Text(
    "--worker-threads: {threads:thread(s)} for OpenMP, OpenCV, BLAS and torch in each of torch's workers",
    "--worker-threads：torch 的每个 worker 里 OpenMP、OpenCV、BLAS 和 torch 各用 {threads} 个线程",
)
_FILES = Text("--files max: {hard} open files, {soft} before", "--files max：可打开 {hard} 个文件，之前是 {soft}")


def _gains(args: argparse.Namespace, terminal: Terminal) -> dict[str, str]:
    """Return what is set for the script, each told: what was not asked for is not set."""
    found = {}
    if args.malloc == "keep":
        found["HEADRACE_MALLOC"] = "keep"
        terminal.warn(_KEPT)
    if args.worker_threads:
        found["HEADRACE_WORKER_THREADS"] = str(args.worker_threads)
        terminal.warn(_THREADS.filled(threads=args.worker_threads))
    if args.files:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # of this process, and of all that it starts
        terminal.warn(_FILES.filled(soft=str(soft), hard=str(hard)))
    return found


def load_report() -> None:
    """Load what the report needs while the script runs: at its end nobody should wait for imports."""
    with suppress(ImportError):  # that is told at the end
        from rich import console, padding, table  # noqa: F401

        from headrace import reports  # noqa: F401
        from headrace.causes import recorded  # noqa: F401


def _report(args: argparse.Namespace, terminal: Terminal, directory: Path, ended: Ended) -> None:
    """Report on the run that has just ended, on stderr: stdout is the script's."""
    from headrace.reports import findings_json, findings_text, headline_of
    from headrace.signals.recording import read_run

    recording = read_run(directory)
    if (recording.events["kind"] == int(EventKind.CACHED)).any():
        changed = Text(
            "this run trained on cached batches for some steps: throw its weights away",
            "这次运行有若干步用的是缓存 batch：它的权重请丢弃",
        )
        terminal.aside(f"headrace: {say(changed)}")
    findings = _explain(directory, recording, ended.exit_code)
    if ended.problem:
        early = Text(f"the recording ended early: {ended.problem}", f"录制提前结束：{ended.problem}")
        findings = replace(findings, limits=(*findings.limits, early))
    document = findings_json(findings, language=args.lang) + "\n"
    for path in filter(None, (directory / "findings.json", args.json)):
        try:
            Path(path).write_text(document, encoding="utf-8")
        except OSError as error:
            problem = Text(f"cannot write {path}: {error.strerror}", f"无法写入 {path}：{error.strerror}")
            terminal.aside(f"headrace: {say(problem)}")
    sys.stdout.flush()
    if terminal.verbosity < 0:
        terminal.aside(f"headrace: {headline_of(findings, args.lang)} ({directory})")
        return
    duration, code = format_seconds(ended.duration_s), ended.exit_code
    title = Text(f"headrace run: {duration}, exit code {code}", f"headrace run：{duration}，退出码 {code}")
    terminal.aside(f"\n{say(title)}")
    more = f"headrace run --report {directory} -v"
    terminal.aside(findings_text(findings, language=args.lang, is_verbose=terminal.verbosity > 0, more=more))
    terminal.aside(say(Text(f"recorded in {directory}", f"录制保存在 {directory}")))


def _report_on(args: argparse.Namespace, terminal: Terminal) -> int:
    """Read a run directory and print its report: the result of this command, so it goes to stdout."""
    from headrace.reports import findings_json, findings_text, headline_of
    from headrace.signals.recording import read_run

    if args.json:
        check_output(args.json)
    if args.command or args.module:
        next_step = "headrace run --report DIR, or headrace run train.py"
        raise UnusableInput("--report runs nothing, and something to run was named", next_step=next_step)
    directory = Path(args.report)
    recording = read_run(directory)
    if not len(recording.events) and not recording.system:
        problems = "; ".join(recording.problems)
        raise UnusableInput(f"{directory} holds no recording", problems=problems, next_step="headrace run train.py")
    findings = _explain(directory, recording, recording.facts.shell_code)
    if args.json:
        Path(args.json).write_text(findings_json(findings, language=args.lang) + "\n", encoding="utf-8")
    if terminal.verbosity < 0:
        terminal.document(headline_of(findings, args.lang))
    else:
        duration = format_seconds((recording.end_ns - recording.facts.start_monotonic_ns) / 1e9)
        ending = _ending(recording.facts)
        title = Text(
            f"headrace run: the recording in {directory}: {duration}, {ending.en}",
            f"headrace run：{directory} 里的录制：{duration}，{ending.zh}",
        )
        terminal.document(title)
        terminal.result(findings_text(findings, language=args.lang, is_verbose=terminal.verbosity > 0))
    return EXIT_FINDINGS if findings.findings else EXIT_OK


def _explain(directory: Path, recording: Recording, exit_code: int | None) -> Findings:
    """Return why a recorded training waits, with what was noted beside the recording.

    A recording that ended early does not know how the script ended.
    """
    from headrace.causes.recorded import explain_recording
    from headrace.launch import read_notes

    findings, command = explain_recording(recording, exit_code=exit_code), list(recording.facts.command)
    source = {"run_directory": str(directory), "command": command, "exit_code": exit_code}
    return replace(findings, limits=(*findings.limits, *read_notes(directory)), source=source)


def _ending(facts: RunFacts) -> Text:
    """Return how the run ended, as far as that was written down."""
    if facts.exit_signal is not None:
        return Text(f"ended by signal {facts.exit_signal}", f"被信号 {facts.exit_signal} 终止")
    if facts.exit_code is not None:
        return Text(f"exit code {facts.exit_code}", f"退出码 {facts.exit_code}")
    return Text("ended", "已结束") if facts.is_finished else Text("no end was written down", "没有记下结束")


class Display:
    """What `--live` shows: a line at the bottom of a terminal, or one now and then."""

    def __init__(self, terminal: Terminal) -> None:
        from headrace.launch import LiveTally

        self._tally = LiveTally()
        self._started_s = time.monotonic()
        self._next_line_s = self._started_s + _LINE_EVERY_S
        self._line = StatusLine(2) if StatusLine.fits(2) else None
        if not sys.stderr.isatty():
            no_line = Text(
                "stderr is no terminal: --live writes a line every 5 s", "stderr 不是终端：--live 改为每 5 秒输出一行"
            )
            terminal.warn(no_line)

    def close(self) -> None:
        if self._line is not None:
            self._line.close()

    def observe(self, pid: int, records: Any) -> None:
        self._tally.feed(pid, records, time.monotonic())

    def tick(self) -> None:
        load_report()
        now = time.monotonic()
        if self._line is None and now < self._next_line_s:
            return
        said = f"headrace: {format_seconds(now - self._started_s)}{say(Text(': ', '：'))}{say(self._tally.said(now))}"
        if self._line is not None:
            self._line.show(said)
        else:
            self._next_line_s = now + _LINE_EVERY_S
            print(said, file=sys.stderr, flush=True)


class StatusLine:
    """The last row of the terminal on a descriptor, while its other rows stay with whoever writes there.

    The scrolling region is made one row shorter, so that output and progress bars of the script scroll above the line.
    Each change is one write: it cannot fall apart in the middle of what the script writes. `close()` gives it back.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rows = 0  # of the terminal when the region was set; 0: it is not set

    @staticmethod
    def fits(fd: int) -> bool:
        """Whether there is a terminal that has a row to spare and understands what we would write."""
        term = os.environ.get("TERM", "")
        try:
            return os.isatty(fd) and os.get_terminal_size(fd).lines >= _FEWEST_ROWS and term not in {"", "dumb"}
        except OSError:
            return False

    def show(self, text: str) -> None:
        """Show a text in the place of the one before, cut to the terminal's width."""
        from rich.cells import set_cell_size

        try:
            size = os.get_terminal_size(self._fd)
        except OSError:  # the terminal is gone; the training need not be
            return
        before = ""
        if size.lines != self._rows and size.lines >= _FEWEST_ROWS:
            self._rows = size.lines
            # A new line first: where the script writes in the last row, its line moves up and out of ours.
            before = f"\n{_SAVE}\x1b[1;{size.lines - 1}r{_RESTORE}\x1b[1A"
        line = set_cell_size(text, max(0, size.columns - 1)).rstrip()
        self._write(f"{before}{_SAVE}\x1b[{self._rows};1H\x1b[2K\x1b[7m{line}\x1b[0m{_RESTORE}")

    def close(self) -> None:
        if self._rows:
            self._write(f"{_SAVE}\x1b[r\x1b[{self._rows};1H\x1b[2K{_RESTORE}")
            self._rows = 0

    def _write(self, text: str) -> None:
        with suppress(OSError):
            os.write(self._fd, text.encode("utf-8", "replace"))
