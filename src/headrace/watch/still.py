"""How long each process has stood at the same place without getting on. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class _Place:
    where: Hashable
    moved_bytes: int | None
    since_s: float


@dataclass
class Stillness:
    """Remembers, by process, since when neither its place nor the bytes it has moved have changed.

    The bytes matter: of a worker that does the same heavy call for sample after sample, every stack looks alike, but
    each task and each batch goes through a pipe.
    """

    places: dict[tuple[int, int], _Place] = field(default_factory=dict)

    def note(self, who: tuple[int, int], where: Hashable | None, moved_bytes: int | None, at_s: float) -> float:
        """Take in where a process is (None: it moved during the look) and return for how long it has been there."""
        known = self.places.get(who)
        if where is None:
            self.places.pop(who, None)
            return 0.0
        if known is None or known.where != where or known.moved_bytes != moved_bytes:
            self.places[who] = _Place(where, moved_bytes, at_s)
            return 0.0
        return at_s - known.since_s

    def forget_others(self, who: set[tuple[int, int]]) -> None:
        """Drop those that are gone."""
        self.places = {key: place for key, place in self.places.items() if key in who}
