"""What a fork copies of a value by looking at all of it: objects, whose references are counted, and no buffers."""

import weakref

import numpy as np

from headrace.signals.system import sizes_of_references


def test_references_are_counted_by_objects_not_by_buffers() -> None:
    flat, listed = np.zeros(10**7, np.uint8), [{"path": f"scan_{n}.bin", "label": n} for n in range(50_000)]
    assert sizes_of_references({"flat": flat})[0] < 5000
    assert 50_000 * 240 < sizes_of_references(listed)[0] < 50_000 * 500
    cyclic: list[object] = [1]
    cyclic.append(cyclic)
    assert sizes_of_references(cyclic)[0] < 200


def test_what_all_items_share_is_counted_once() -> None:
    settings = {f"name{at}": [str(at)] for at in range(1000)}
    assert sizes_of_references([(settings, 1) for _ in range(50_000)])[0] < 50_000 * 100


class Slotted:
    __slots__ = ("label", "path")

    def __init__(self, number: int) -> None:
        self.path, self.label = f"scan_{number}.bin", number


class Unmade:
    """A proxy of what is made when it is asked for, and here cannot be made yet."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise LookupError("asked for outside of a request")


def test_objects_with_slots_are_looked_into_and_proxies_are_not() -> None:
    assert sizes_of_references([Slotted(n) for n in range(50_000)])[0] > 50_000 * 120
    gone = weakref.proxy(Unmade())
    assert sizes_of_references([gone, Unmade()])[0] < 1000


def test_long_containers_inside_of_long_ones_are_looked_into_less() -> None:
    pages = [[(f"{row}.{column}", column) for column in range(300)] for row in range(300)]
    assert 90_000 * 100 < sizes_of_references(pages)[0] < 90_000 * 250
