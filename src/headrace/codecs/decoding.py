"""A decoder for the fields of a sample, chosen by their extensions; texts, JSON and labels are decoded here."""

import json as _json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.errors import HeadraceError
from headrace.model import stage

from .arrays import npy, npz, points
from .nifti_volume import nifti
from .pictures import jpeg, png
from .source import Data, Source

FieldDecoder: TypeAlias = Callable[..., Any]


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
        return str(source.read(0, source.size), encoding)
    except UnicodeDecodeError as error:
        raise source.damaged(f"not {encoding} text: {error.reason}", offset=error.start) from None


def cls(data: Data, *, name: str | None = None) -> int:
    """Return a class label, a whole number written as text: the `.cls` of WebDataset shards."""
    with Source(data, name) as source, stage("label decode"):
        content = bytes(source.read(0, source.size))
        try:
            return int(content)
        except ValueError:
            raise source.damaged("not a class label, which is a whole number", content=content[:40]) from None


_BY_EXTENSION: dict[str, FieldDecoder] = {
    "bin": points,
    "cls": cls,
    "jpeg": jpeg,
    "jpg": jpeg,
    "json": json,
    "nii": nifti,
    "nii.gz": nifti,
    "npy": npy,
    "npz": npz,
    "png": png,
    "txt": text,
}
_OURS = frozenset(_BY_EXTENSION.values())


@dataclass(frozen=True)
class Decoder:
    """Decodes the fields of a sample. Call it with a mapping from extension to bytes; pickles with its functions."""

    fields: Mapping[str, FieldDecoder]

    @property
    def takes_views(self) -> bool:
        """Whether fields may be views in place of bytes: ours read both, other functions were promised bytes."""
        return all(getattr(function, "func", function) in _OURS for function in self.fields.values())

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """Return the decoded fields in the order they were asked for, and `__key__` where the sample has one.

        An error of ours names the sample and the field; one of your own function gets them as a note.
        """
        key = sample.get("__key__")
        decoded: dict[str, Any] = {} if key is None else {"__key__": key}
        for field, function in self.fields.items():
            if field not in sample:
                there_are = ", ".join(sorted(map(str, sample))) or "nothing"
                raise KeyError(f"sample {'?' if key is None else key} has no field {field!r}; it has: {there_are}")
            label = field if key is None else f"{key}.{field}"
            try:
                decoded[field] = function(sample[field], name=label) if function in _OURS else function(sample[field])
            except Exception as error:
                if not (isinstance(error, HeadraceError) and error.what.startswith(label)):
                    error.add_note(f"while decoding {label}")
                raise
        return decoded


def decode(*extensions: str, **functions: FieldDecoder) -> Decoder:
    """Make a decoder for samples whose fields are named by extension, such as those of `Shards`.

    Extensions get our codec for them (`decode("jpg", "npz", "json")`; "seg.png" counts as "png"). Keywords give a field
    your own function from bytes to anything, or one of ours with options:
    `decode("npz", jpg=partial(codecs.jpeg, size=(512, 512)))`. A field whose name is no Python name goes into
    `**{"seg.png": function}`.

    >>> sample = decode("txt", "cls")({"__key__": "study_001", "txt": b"no findings", "cls": b"3", "jpg": b""})
    >>> sample
    {'__key__': 'study_001', 'txt': 'no findings', 'cls': 3}
    """
    for field, function in functions.items():
        if not callable(function):
            raise TypeError(f"{field}={function!r}: give a function from bytes to the decoded field")
    return Decoder({extension: _find(extension) for extension in extensions} | functions)


def _find(extension: str) -> FieldDecoder:
    name = extension.lower().lstrip(".")
    for known in (name, ".".join(name.split(".")[-2:]), name.rpartition(".")[2]):
        if known in _BY_EXTENSION:
            return _BY_EXTENSION[known]
    raise ValueError(
        f"no codec for {extension!r}; known are {', '.join(sorted(_BY_EXTENSION))}. "
        f"For another, pass your own function: decode(**{{{extension!r}: function}})"
    )
