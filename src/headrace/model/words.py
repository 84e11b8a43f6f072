"""Sentences in every language that we speak, and figures in them: three digits and a unit, sizes such as "8GiB"."""

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

LANGUAGES = ("en", "zh")
_FORMS = re.compile(r"\((?:(\w*)\|)?(\w*)\)")


class Count(int):
    """A number that knows what it counts, in the two forms that English has: `save(s)`, `cop(y|ies)`.

    >>> f"{Count(1):batch(es) (was|were)} late", f"{Count(3):batch(es) (was|were)} late"
    ('1 batch was late', '3 batches were late')
    """

    def __format__(self, spec: str) -> str:
        said = _FORMS.sub(lambda form: (form[1] or "") if self == 1 else form[2], spec)
        return int(self).__format__(spec) if said == spec else f"{int(self)} {said}"


@dataclass(frozen=True)
class Text:
    """One sentence in English and in Chinese, written side by side where it is decided what to say.

    >>> said = Text("{count:save(s)}", "{count} 次保存").filled(count=1)
    >>> said.en, said.of("zh")
    ('1 save', '1 次保存')
    """

    en: str
    zh: str

    def filled(self, **values: object) -> "Text":
        """Return the sentence with its blanks filled in: by a `Text` in the language of each."""
        counts = {name: Count(value) for name, value in values.items() if isinstance(value, int)}
        en, zh = (
            self.of(language).format(
                **{k: v.of(language) if isinstance(v, Text) else v for k, v in (values | counts).items()}
            )
            for language in LANGUAGES
        )
        return Text(en, zh)

    def of(self, language: str) -> str:
        """Return it in one of `LANGUAGES`."""
        return self.zh if language == "zh" else self.en


_NO_WORDS = Text("", "")


class Said(StrEnum):
    """What a report may say in a word: a value for documents, and what people read, side by side."""

    label: Text

    def __new__(cls, value: str, label: Text = _NO_WORDS) -> Self:  # a look-up by the value has none
        member = str.__new__(cls, value)
        member._value_, member.label = value, label
        return member


_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _UNITS |= {f"{_letter}b": 1000**_power, _letter: 1024**_power, f"{_letter}ib": 1024**_power}
_PATTERN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def three_digits(value: float) -> str:
    """Return a number with three digits that mean something, and no exponent.

    >>> three_digits(0.01234), three_digits(0.9999), three_digits(12345.6), three_digits(0)
    ('0.0123', '1.00', '12346', '0')
    """
    if value == 0:
        return "0"
    rounded = float(f"{value:.3g}")  # first, or 0.9999 becomes 1.000
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(rounded))))}f}"


def with_error(value: float, error: float, *, places: int = 2) -> str:
    """Return a value and its error with the digits that the error allows, two of its own, and so many places at most.

    >>> with_error(3.2249, 0.198), with_error(1.05, 0.00343), with_error(12.345, 3.21), with_error(164.2, 31)
    ('3.22 ± 0.20', '1.05 ± 0.01', '12.3 ± 3.2', '164 ± 31')
    """
    error = max(error, 10.0**-places)
    places = min(places, max(0, 1 - math.floor(math.log10(float(f"{error:.2g}")))))
    return f"{value:.{places}f} ± {error:.{places}f}"


def format_seconds(seconds: float, error_s: float | None = None) -> str:
    """Return a length of time with the unit that suits it, and its error where that is known.

    >>> format_seconds(0.00042), format_seconds(0.16), format_seconds(20.69), format_seconds(3630)
    ('0.420 ms', '160 ms', '20.7 s', '60.5 min')
    >>> format_seconds(0.0061, 0.000315)
    '6.10 ± 0.32 ms'
    """
    units = ((0.001, "ms"), (1, "s"), (60, "min"), (3600, "h"))
    unit_s, unit = units[(seconds >= 0.9995) + (seconds >= 600) + (seconds >= 36000)]
    if error_s is not None:
        return f"{with_error(seconds / unit_s, error_s / unit_s, places=3)} {unit}"
    return f"{three_digits(seconds / unit_s)} {unit}"


def format_share(share: float) -> str:
    """Return a share as a percentage.

    >>> format_share(0.123), format_share(0.004), format_share(0.0004)
    ('12 %', '0.4 %', 'under 0.1 %')
    """
    if 0 < share < 0.001:
        return "under 0.1 %"
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"


def parse_bytes(value: int | str, *, name: str = "memory") -> int:
    """Return a positive number of bytes from `8589934592`, `"8GiB"`, `"512 MB"` or `"1.5g"`.

    >>> parse_bytes("8GiB"), parse_bytes("1.5 MB")
    (8589934592, 1500000)
    """
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError(f"{name} takes a number of bytes or a text such as '8GiB', not {value!r}")
    if isinstance(value, str):
        match = _PATTERN.fullmatch(value)
        unit = match.group(2).lower() if match else None
        if match is None or unit not in _UNITS:
            raise ValueError(f"{name}={value!r} is not a size; write a number of bytes, or one with KiB, MiB, GiB, TiB")
        value = int(float(match.group(1)) * _UNITS[unit])
    if value <= 0:
        raise ValueError(f"{name} must be more than 0 bytes, got {value}")
    return value


def format_bytes(value: float) -> str:
    """Return a size with three digits and its binary unit.

    >>> format_bytes(5 * 2**20), format_bytes(900)
    ('5.00 MiB', '900 B')
    """
    if abs(value) < 1000:
        return f"{value:.0f} B"
    power = next((power for power in (1, 2, 3) if abs(value) < 1000 * 1024**power), 4)
    value /= 1024**power
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{digits}f} {'KMGT'[power - 1]}iB"
