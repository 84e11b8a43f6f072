"""`headrace chaos`: let faults strike a loader over the user's own data set, and check every sample it delivers."""

import argparse
import json

from ..arguments import add_language, language_of, seconds, whole
from ..exits import EXIT_FINDINGS, EXIT_OK
from ..terminal import Terminal
from .messages import chaos_messages

# the names of `headrace.doctor.chaos.FaultKind`, here so that --help does not load that room; a test compares them
KINDS = ("kill", "segv", "bus", "exit", "abort", "exception", "hang", "stop", "slow", "hog", "shm_full", "fd_limit")

_DESCRIPTION = """\
Run headrace's DataLoader over a data set while faults strike it: workers are killed, stopped and crashed, samples
raise, hang and take long, memory is hogged, /dev/shm is full, file descriptors run out. Then compare every sample that
was delivered, one by one, with the order that seed and epoch define, without the quarantined.

TARGET is module:attribute or path/to/file.py:attribute: a data set with a length and an index, a function that makes
one, or a loader, whose data set, batch size, collate_fn and worker_init_fn are used. Without it, an embedded data set.
Nothing is changed in the data set; the faults come from a wrapper around it and from outside.
"""

_EPILOG = """\
faults:
  kill, segv, bus, exit, abort   the worker dies: SIGKILL (from inside and from outside), a null pointer, a mapped file
                                 that was truncated, os._exit, abort()
  exception                      the sample raises: EIO that passes, or an error each time
  hang, stop                     a lock that nobody releases; SIGSTOP (from inside and from outside)
  slow, hog                      a sample takes a second; a sample takes 256 MiB for a moment
  shm_full, fd_limit             /dev/shm has no byte left; the limit of open files is lowered while it runs
exit codes: 0 all survived, 1 something was lost, repeated, damaged, hung or left behind, or the data set has bad
samples of its own, 2 could not run
"""


def add_parser(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", shared: argparse.ArgumentParser
) -> None:
    """Add the command's options."""
    parser = commands.add_parser(
        "chaos",
        parents=[shared],
        help="let faults strike a loader over your data set, and check every sample that comes",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", nargs="?", metavar="TARGET", help="module:attribute or file.py:attribute")
    parser.add_argument(
        "--faults", type=_kinds, default=KINDS, metavar="KIND,…", help="which kinds (default: all of those below)"
    )
    parser.add_argument(
        "--num-faults", type=whole(1, 100_000), default=40, metavar="N", help="how many faults (default: 40)"
    )
    parser.add_argument("--seconds", type=seconds(), metavar="S", help="go on for so long, instead of --num-faults")
    parser.add_argument(
        "--seed",
        type=whole(0, 2**63 - 1),
        default=0,
        metavar="N",
        help="of the order and the faults (default: 0)",
    )
    parser.add_argument("--workers", type=whole(1, 64), metavar="N", help="default: the given loader's, else 4")
    parser.add_argument("--batch-size", type=whole(1, 100_000), metavar="N", help="default: the given loader's, else 8")
    parser.add_argument(
        "--samples",
        type=whole(2, 10_000_000),
        default=1000,
        metavar="N",
        help="samples of the data set that a round goes through, drawn anew each time (default: 1000)",
    )
    parser.add_argument("--backend", choices=("process", "thread"), default="process", help="default: process")
    parser.add_argument(
        "--start-method",
        choices=("fork", "forkserver", "spawn"),
        help="how worker processes start (default: the platform's)",
    )
    parser.add_argument(
        "--timeout",
        type=seconds(),
        default=3.0,
        metavar="S",
        help="past this age a sample counts as hanging; more than your slowest sample takes (default: 3)",
    )
    add_language(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document, schema headrace/chaos/1")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Run the rounds and print what became of each kind of fault."""
    from headrace.doctor.chaos import PRACTICE, ChaosSettings, run_chaos

    from .text import report_json, report_text

    words = chaos_messages(language_of(args))
    settings = ChaosSettings(
        target=args.target or PRACTICE,
        kinds=args.faults,
        num_faults=args.num_faults,
        seed=args.seed,
        seconds=args.seconds,
        num_workers=args.workers,
        backend=args.backend,
        start_method=args.start_method,
        batch_size=args.batch_size,
        timeout_s=args.timeout,
        most_samples=args.samples,
    )
    with terminal.progress(words.running):
        report = run_chaos(settings)
    if args.json:
        terminal.document(json.dumps(report_json(report), ensure_ascii=False, indent=2))
    else:
        terminal.result(report_text(report, words))
    return EXIT_OK if report.is_clean and not report.own_failures else EXIT_FINDINGS


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        raise argparse.ArgumentTypeError(
            f"{', '.join(unknown) or 'nothing'} is no fault; choose from {', '.join(KINDS)}"
        )
    return kinds
