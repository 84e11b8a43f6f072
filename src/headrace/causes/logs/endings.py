"""How a log ends: exceptions that nobody caught, a shell's word for a signal, or the words of a normal end. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from .fields import split_numbers

_MOST_BEHIND = 20  # ordinary lines behind an error, from which on the run went on
_HEAD = re.compile(r"(?P<before>.*?)(?:Original |─+ )?Traceback \(most recent call last\)")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)(?:, in (\S+))?|│ (\S+\.py):(\d+) in (\S+)')
_LIBRARY = re.compile(r"(?:site|dist)-packages|[/\\][Ll]ib[/\\](?:python\d|multiprocessing)|^<|\.pyx$|^h5py")
_RAISED = re.compile(
    r"(?:[A-Za-z_]\w*\.)*(?:\w*(?:Error|Exception|Group|Interrupt|Exit|Iteration|Expired|Empty)|(?<=\.)(?!(?:sh|py)\b)\w+)"
    r"(?:\(\w+\))?(?:: ?.*)?$"
)
# Printed by Python where it goes on: at its exit, in a destructor; and by libraries that do.
_GOES_ON = re.compile(r"Exception ignored in|Error in (?:atexit|sys\.excepthook)")
_SURVIVED = re.compile(
    r"\bWARN(?:ING)?\b(?!.*closing signal|.*death signal)|\bwarning: |\w+Warning\b|\b[Ss]kipp(?:ed|ing)\b"
    r"|\b[Ii]gnor(?:ed|ing)\b|\b[Rr]etrying\b"
)
_SIGNAL = re.compile(
    r"(?:.*\d\.?\d*(?:it/s|s/it)[^\]]*\]|\[\d+\]<std\w+>:)?\s*"
    r"(?:(Killed|已杀死|Terminated|已终止|Hangup|挂起)(?:: 9)?\s*$"
    r"|zsh: (killed|terminated|hangup)\b)"
)
_FINISHED = re.compile(
    r"\b(?:train(?:ing)?|fit(?:ting)?|experiment|epochs)\b.{0,30}\b(?:completed?|finished|done|successful\w*)\b"
    r"|['\"]train_runtime|\btrain_runtime +=|=\S+ reached\.|\bstatus\W+success|训练\S{0,6}(?:完成|结束)"
    r"|\b(?:exit|ret(?:urn)?)[_ ]?code\W{1,3}0\b",
    re.IGNORECASE,
)
# Ends that are no exceptions of a running program: it was not even started, or another one tells how it went.
_OTHER_ENDS = re.compile(
    r"\s*(?:(?P<syntax>(?:Syntax|Indentation|Tab)Error(?=.*\b(?:invalid|unexpected|expected|unterminated)).*)"
    r"|\S+: (?P<usage>error: (?:argument |unrecognized arguments|the following arguments).*)"
    r"|(?P<code>(?:Exited|Process finished) with exit code -?[1-9]\d*.*)|.*\bDetected (?P<stop>KeyboardInterrupt)"
    r"|(?:\S+: line \d+: |srun: error: \S+: task\D+[\d,-]+: |Fatal Python error: )?(?: *\d+ )?"
    r"(?P<native>(?:Segmentation fault|Bus error|Aborted|Illegal instruction|Floating point exc|段错误|总线错误)"
    r"(?! enc).*)|(?P<thrown>terminate called after .*))"
)
_NOT_STARTED = re.compile(r"(?:Syntax|Indentation|Tab)Error")  # so that what comes behind it is another start
_TRAINS = re.compile(r"\b(?:epoch|step|iter(?:ation)?|batch)\b\W{0,4}\d", re.IGNORECASE)
# Lines that a dying run still writes: other ranks, launchers, schedulers, trackers, native stacks.
_AFTERMATH = re.compile(
    r"\s|$|[\[(](?:rank|default|[WEF]|\d+\]:|\w+ pid)|[=*_-]{3}|[│╭╰]|frame #|wandb|srun|slurm|torch|NCCL|nccl|Killing"
    r"|SIG[A-Z]{2}|[\w.]*(?:Error|Exception|Interrupt)\b|Traceback|During|The above|Process |Failures|Root|[WEIF]\d{4} "
    r"|(?:WARNING|ERROR|INFO):torch|Original|\+ |Aborted|Bus error|Segmentation|subprocess|terminate|Main process|Fatal"
)
# What is raised on the way to another exception, and what only tells that another process failed.
_ON_THE_WAY = re.compile(r"(?:\w+\.)?(?:Empty|KeyError|AttributeError|IndexError|\w*ImportError|\w*NotFoundError)\b")
_ECHO = re.compile(
    r"Caught \w+ in |ChildFailedError|Remote(?:Traceback|Error)|RayTaskError|CalledProcessError|ProcessRaisedException"
    r"|background workers? (?:are|is)|NCCL|nccl|gloo|TCPStore|[Cc]onnection|Broken pipe|[Ss]ocket|EOFError|DistBackend"
    r"|handle is closed"
)


@dataclass(frozen=True)
class Raised:
    """An exception that a log shows: its line, what it says, and where the user's code raised it."""

    line: int
    text: str
    place: str
    is_own_code: bool
    quotes: bool = False  # the traceback of another one, which stands below it

    @property
    def is_echo(self) -> bool:
        """Whether it only tells that another process is gone, or has no traceback, so that others are surer."""
        return not self.place or self.quotes or _ECHO.search(self.text) is not None


@dataclass
class LogEnd:
    """The end of a log."""

    last_step: int
    zone: int = 0  # the line from which on hardly anything but dying is told
    finished: int = 0  # the last line that says that all is done
    raised: list[Raised] = field(default_factory=list)
    signal: tuple[int, str] | None = None
    quiet: set[int] = field(default_factory=set)  # lines whose errors ended nothing

    def ended_by(self, line: int, *, from_outside: bool = False) -> bool:
        """Whether a message in this line can have ended the run; a job that is ended may still finish a step."""
        is_behind = line >= self.last_step and line > self.finished
        return line >= self.zone and (from_outside or is_behind) and line not in self.quiet

    @property
    def first(self) -> Raised | None:
        """The exception that the others come from."""
        raised = [one for one in self.raised if self.ended_by(one.line)]
        return next((one for one in raised if not one.is_echo), raised[0] if raised else None)


def read_end(lines: Sequence[tuple[int, str]], *, last_step: int) -> LogEnd:
    """Return how a log ends, from its last lines, each with its number."""
    seen: set[str] = set()
    for number, text in lines:  # steps without times, too: where they go on, the run did
        if _TRAINS.search(text) and "%|" not in text and _AFTERMATH.match(text) is None:
            shape = split_numbers(text)[0]
            last_step = max(last_step, number) if shape in seen else last_step
            seen.add(shape)
    end, behind = LogEnd(last_step), 0
    for end.zone, text in reversed(lines):
        behind += _AFTERMATH.match(text) is None
        if behind > _MOST_BEHIND:
            break
    frames: list[tuple[str, ...]] = []
    before, is_open, is_heard, is_again = "", False, True, False
    header: set[str] = set()
    for number, text in lines:
        if _SURVIVED.search(text):
            end.quiet.add(number)
        if number > last_step and _FINISHED.search(text):
            end.finished = number
        if number >= last_step and (signal := _SIGNAL.match(text)):
            end.signal = number, signal[1] or signal[2].capitalize()
        if head := _HEAD.match(text):
            end.raised = [] if is_again else end.raised  # another start, which failed as well
            if end.raised and end.raised[-1].text.endswith(":") and number - end.raised[-1].line < 4:
                end.raised[-1] = replace(end.raised[-1], quotes=True)
            before, is_open, frames, is_again = head["before"], True, [], False
            before = "" if before.endswith(("^C", "]")) or "%|" in before else before
            continue
        if number >= last_step and not is_open and (other := _OTHER_ENDS.match(text)):
            end.raised = [] if is_again else end.raised
            is_again = False
            end.quiet.discard(number)
            end.raised.append(_raised(number, other[other.lastgroup or 0].rstrip(), frames))
        elif not is_open and _AFTERMATH.match(text) is None:
            header |= set() if end.raised else {text}  # what stood before the first error
            is_again |= bool(end.raised) and text in header
        if _GOES_ON.search(text):
            is_heard = is_open = False
        elif "above exception" in text and end.raised and _ON_THE_WAY.match(end.raised[-1].text):
            is_cause = "direct cause" in text and "Import" in end.raised[-1].text
            end.raised = end.raised if is_cause else end.raised[:-1]
        if not is_open and is_heard:
            is_open = '  File "' in text  # a traceback whose beginning was cut off
        if not is_open and is_heard:
            continue
        body = text[len(before) :] if split_numbers(text[: len(before)])[0] == split_numbers(before)[0] else text
        if frame := _FRAME.search(body):
            frames.append(tuple(group or "" for group in frame.groups() if group is not None))
        elif match := _RAISED.match(body):
            if is_heard and number >= last_step:
                is_again |= len(frames) == 1 and _NOT_STARTED.match(match[0]) is not None
                end.quiet.discard(number)
                end.raised.append(_raised(number, match[0].rstrip(), frames))
            elif not is_heard:
                end.quiet.add(number)
            is_open, is_heard = False, True
    return end


def _raised(line: int, text: str, frames: Sequence[tuple[str, ...]]) -> Raised:
    own = next((frame for frame in reversed(frames) if not _LIBRARY.search(frame[0])), None)
    place = own or (frames[-1] if frames else ())
    said = "{}, line {}".format(*place) + (f", in {place[2]}" if len(place) > 2 else "") if place else ""
    return Raised(line, text, said, own is not None)
