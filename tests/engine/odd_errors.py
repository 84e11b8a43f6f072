"""Exceptions whose own methods fail or lie, as real ones do: with a lock inside, half built, made by a proxy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class StrRaises(Exception):
    def __str__(self) -> str:
        raise AttributeError("no response yet")


class StrInterrupts(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class StrExits(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class StrIsNoText(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # noqa: PLE0307


class _OwnText(str):
    def __reduce__(self) -> Any:
        raise TypeError("does not travel")


class StrIsOwnText(Exception):
    def __str__(self) -> str:
        return _OwnText("a text of its own")


class StrIsHuge(Exception):
    def __str__(self) -> str:
        return "x" * (80 << 20)


class ReprRaises(Exception):
    def __repr__(self) -> str:
        raise ValueError("no repr")


class ArgsRaise(Exception):
    @property
    def args(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no args")


class ReduceRaises(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("does not travel")


class ReduceLies(Exception):
    def __reduce__(self) -> Any:
        return 42


class _Unreadable:
    def __reduce__(self) -> Any:
        return int, ("no number",)


class HoldsUnreadable(Exception):
    def __init__(self, message: str = "holds") -> None:
        super().__init__(message)
        self.held = [_Unreadable(), threading.Lock(), lambda: 0]


class TracebackRaises(Exception):
    @property
    def __traceback__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no way back")


class CauseRaises(Exception):
    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no cause")


class AllRaise(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise SystemExit(f"no {name}")


class ErrnoRaises(OSError):
    @property
    def errno(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no number")

    @property
    def filename(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no file")


class WantsMore(Exception):
    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{reason} ({code})")


class FormatsLate(Exception):
    """Keeps an object, and makes its text of that; a text in its place breaks it."""

    def __init__(self, response: Any) -> None:
        self.response = response

    def __str__(self) -> str:
        return f"status {self.response['status']}"


class MakesSomethingElse(Exception):
    def __new__(cls, *args: Any) -> Any:
        return super().__new__(cls) if not args else 7


class _NamelessType(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__name__", "__qualname__", "__module__"):
            raise RuntimeError(f"no {name}")
        return super().__getattribute__(name)


def nameless() -> Exception:
    class Nameless(Exception, metaclass=_NamelessType):  # not of the module: pytest asks all there for their names
        pass

    return Nameless("of a class without a name")


def ring() -> Exception:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    return one


def odd_notes() -> Exception:
    error = ValueError("has notes")
    error.__notes__ = 5  # type: ignore[assignment]
    return error


def notes_of_no_text() -> Exception:
    error = ValueError("has notes")
    error.__notes__ = [StrRaises(), None]  # type: ignore[list-item]
    return error


def local() -> Exception:
    class Local(Exception):
        pass

    return Local("made here")


def surrogates() -> Exception:
    return ValueError("scan_\udcff.npz")


# (how to make it, the name of its type, whether that type can be raised in another process)
ODD: list[tuple[Callable[[], BaseException], str, bool]] = [
    *(
        (kind, kind_name, True)
        for kind, kind_name in [
            (StrRaises, "StrRaises"),
            (StrInterrupts, "StrInterrupts"),
            (StrExits, "StrExits"),
            (StrIsNoText, "StrIsNoText"),
            (StrIsOwnText, "StrIsOwnText"),
            (StrIsHuge, "StrIsHuge"),
            (ReprRaises, "ReprRaises"),
            (ArgsRaise, "ArgsRaise"),
            (ReduceRaises, "ReduceRaises"),
            (ReduceLies, "ReduceLies"),
            (HoldsUnreadable, "HoldsUnreadable"),
            (TracebackRaises, "TracebackRaises"),
            (CauseRaises, "CauseRaises"),
            (ErrnoRaises, "ErrnoRaises"),
            (lambda: FormatsLate({"status": 503}), "FormatsLate"),
            (ring, "ValueError"),
            (odd_notes, "ValueError"),
            (notes_of_no_text, "ValueError"),
            (surrogates, "ValueError"),
        ]
    ),
    (AllRaise, "AllRaise", True),
    (lambda: WantsMore(404, "not found"), "WantsMore", False),
    (MakesSomethingElse, "MakesSomethingElse", False),
    (nameless, "Nameless", False),
    (local, "Local", False),
]
