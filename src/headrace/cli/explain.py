"""`headrace explain`: why a training was slow or died, from its log alone."""

import argparse
import sys

from headrace.errors import UnusableInput
from headrace.model import Findings, Text, Verdict

from .arguments import Commands, add_command, add_language
from .terminal import EXIT_FINDINGS, EXIT_OK, Terminal

_DESCRIPTION = """\
Read the logs of one training run and say what was lost to which cause, on what evidence, what helps, what cannot, and
what a log cannot decide. No torch is needed, logs of any size are streamed, and gzip, bzip2 and xz are undone.

It reads progress bars (tqdm, Lightning, transformers, accelerate, Ultralytics), lines with step times and data times
(mmcv, mmengine, the PyTorch examples, `step 12 time 0.3s` in most spellings, in English or Chinese), lines with nothing
but a time stamp and a step number, reports of slow batches, Slurm's output, kernel messages and Python tracebacks.
Several logs are taken as one run: rotated parts, ranks, stdout and stderr. A few lines are printed: what was lost to
what, what to do, the check that decides; -v adds the evidence and the rest.
"""


def add_parser(commands: Commands, shared: argparse.ArgumentParser) -> None:
    summary = "why a training was slow or died, from its log alone"
    parser = add_command(commands, shared, "explain", run, summary, description=_DESCRIPTION)
    parser.add_argument("logs", nargs="*", metavar="LOG", help="logs of one run; - is standard input")
    message = "look one error message up instead of reading logs; - is standard input"
    parser.add_argument("--message", metavar="TEXT", help=message)
    add = parser.add_mutually_exclusive_group().add_argument
    forms = ("text", "json", "markdown")
    add("--format", choices=forms, default="text", help="form of the output (default: text)")
    document = "print one JSON document, schema headrace/findings/1"
    add("--json", dest="format", action="store_const", const="json", help=document)
    add("--markdown", dest="format", action="store_const", const="markdown", help="print Markdown")
    add_language(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Explain the logs and print what was found; where JSON is wanted, print a document on a refusal too."""
    try:
        return _explain(args, terminal)
    except UnusableInput as error:
        if args.format == "json":
            said = {"what": error.what, "evidence": error.evidence, "next_step": error.next_step}
            terminal.json({**Findings(verdict=Verdict.UNKNOWN, findings=()).as_json(), "error": said})
        raise


def _explain(args: argparse.Namespace, terminal: Terminal) -> int:
    if args.message is not None:
        if args.logs:
            args.parser.error("--message takes no logs; give one or the other")
        return _look_up(args.message, args.format, args.lang, terminal)
    if not args.logs:
        args.parser.error("name a log, - for standard input, or --message TEXT")
    from headrace.causes import explain_logs
    from headrace.reports import findings_json, findings_markdown, findings_text

    logs = ", ".join(args.logs)
    with terminal.progress(Text(f"reading {logs}", f"正在读取 {logs}")):
        findings = explain_logs(args.logs)
    if args.format == "text":
        terminal.result(findings_text(findings, language=args.lang, is_verbose=terminal.verbosity > 0))
    else:
        form = findings_json if args.format == "json" else findings_markdown
        terminal.document(form(findings, language=args.lang))
    return EXIT_FINDINGS if findings.findings else EXIT_OK


def _look_up(text: str, form: str, language: str, terminal: Terminal) -> int:
    from headrace.causes import explain_message
    from headrace.knowledge import message_as_dict, render_markdown, render_text

    findings, found = explain_message(sys.stdin.read() if text == "-" else text)
    if form == "json":
        terminal.json({**findings.as_json(language), "messages": [message_as_dict(one, language) for one in found]})
    else:
        terminal.document((render_markdown if form == "markdown" else render_text)(found, language))
    return EXIT_FINDINGS if findings.findings else EXIT_OK
