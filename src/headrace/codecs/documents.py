"""Text and JSON: labels, reports, metadata."""

from __future__ import annotations

import json as _json
from typing import Any

from headrace.model import stage

from .source import Data, Source


def text(data: Data, *, encoding: str = "utf-8-sig", name: str | None = None) -> str:
    """Return a text; a byte order mark is dropped. Bytes that are not text are an error that says where."""
    with Source(data, name) as source, stage("text decode") as timed:
        timed.nbytes = source.size
        return _text(source, encoding)


def json(data: Data, *, name: str | None = None) -> Any:
    """Return what a JSON document holds. Parsing keeps the interpreter's lock: it makes Python objects."""
    with Source(data, name) as source, stage("json decode") as timed:
        timed.nbytes = source.size
        content = _text(source, "utf-8-sig")
        try:
            return _json.loads(content)
        except _json.JSONDecodeError as error:
            raise source.damaged(
                f"not JSON: {error.msg}", line=error.lineno, column=error.colno, offset=error.pos
            ) from None
        except RecursionError:
            raise source.damaged("JSON that is nested too deeply to be read", size=f"{source.size} bytes") from None
        except ValueError as error:  # Python refuses numbers of thousands of digits
            raise source.damaged(f"JSON that cannot be read: {error}") from None


def _text(source: Source, encoding: str) -> str:
    try:
        return str(source.whole(), encoding)
    except UnicodeDecodeError as error:
        raise source.damaged(f"not {encoding} text: {error.reason}", offset=error.start) from None
