"""What is wrong with a shard: where, what was lost, and what is still readable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class DamageKind(StrEnum):
    """How a tar file is damaged."""

    NO_END = "no_end"  # it ends after a member: cut at a boundary, or never finished
    CUT_IN_HEADER = "cut_in_header"
    CUT_IN_DATA = "cut_in_data"
    CORRUPT_HEADER = "corrupt_header"
    ZEROS_INSIDE = "zeros_inside"  # blocks of zeros, where other readers stop, and members after them
    AFTER_END = "after_end"  # something that is no member after the end


@dataclass(frozen=True, kw_only=True)
class DamagedPlace:
    """One place in a shard that is not as it should be.

    >>> print(DamagedPlace(shard="a.tar", kind=DamageKind.NO_END, offset=1536, before=3, member="x.jpg"))
    a.tar: at byte 1536 it ends without end blocks, after x.jpg: cut at a member, or never finished; all 3 members \
before it are readable
    """

    shard: str
    kind: DamageKind
    offset: int
    size: int = 0  # bytes that could not be read as members
    before: int = 0  # members before it that are whole
    after: int = 0  # members after it that are whole
    member: str = ""  # the one that was cut, or the last before the place

    def __str__(self) -> str:
        where = f"{self.shard}: at byte {self.offset} "
        readable = f"; {_count(self.before)} before it and {_count(self.after)} after it are readable"
        match self.kind:
            case DamageKind.NO_END:
                last = f", after {self.member}" if self.member else ""
                what = f"it ends without end blocks{last}: cut at a member, or never finished"
                readable = f"; all {_count(self.before)} before it are readable"
            case DamageKind.CUT_IN_HEADER:
                what = f"it is cut inside a header, {self.size} bytes after the last member {self.member}"
                readable = f"; all {_count(self.before)} before it are readable"
            case DamageKind.CUT_IN_DATA:
                what = f"the data of {self.member} is cut, {self.size} bytes are missing"
                readable = f"; all {_count(self.before)} before it are readable"
            case DamageKind.CORRUPT_HEADER:
                what = f"a header is corrupt, {self.size} bytes are lost up to the next valid one"
            case DamageKind.ZEROS_INSIDE:
                what = f"{self.size} bytes of zeros lie between members; other readers stop there"
            case DamageKind.AFTER_END:
                what = f"{self.size} bytes after the end are no tar"
                readable = f"; all {_count(self.before)} before it are readable"
        return where + what + readable

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON holds it, without the shard."""
        named = ("kind", "offset", "size", "before", "after", "member")
        return {name: getattr(self, name) for name in named}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], shard: str) -> DamagedPlace:
        """Return it from `as_json`'s form."""
        return cls(**{**document, "kind": DamageKind(document["kind"]), "shard": shard})


def _count(number: int) -> str:
    return f"{number} member" if number == 1 else f"{number} members"
