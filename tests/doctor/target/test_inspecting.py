"""What a data set is made of: which part cannot be pickled, holds a file open, is copied by a fork."""

import functools
import sqlite3
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headrace.doctor.target.inspecting import (
    copied_by_fork,
    find_handles,
    find_unpicklable,
    pickled_bytes,
)


class Holder:
    def __init__(self, **parts: Any) -> None:
        vars(self).update(parts)


class Clean(Holder):
    def __getstate__(self) -> Any:
        return {}


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Holder(steps=[str, lambda value: value]), "d.steps[1]"),
        (Holder(inner=Holder(table={"a": 1, "lock": threading.Lock()})), "d.inner.table['lock']"),
        (Holder(call=functools.partial(max, key=lambda value: value)), "d.call"),
        (Holder(first=[1], np=np), "d.np"),
        (Holder(first={"a": [str]}, items=[*range(300), lambda value: value]), "d.items"),
    ],
)
def test_the_part_that_cannot_be_pickled_is_named(value: Any, name: str) -> None:
    found = find_unpicklable(value, "d")
    assert found is not None
    assert found[0].startswith(name)
    assert "pickle" in found[1]


def test_parts_that_point_back_are_looked_at_once() -> None:
    class Item:
        def __init__(self, owner: Any) -> None:
            self.owner = owner

    items: list[Any] = []
    items += [Item(items) for _ in range(10_000)]
    found = find_unpicklable(items, "items")
    assert found is not None
    assert found[0].count("owner") < 2
    assert len(copied_by_fork(items, "items")) == 1  # and comes back


def test_a_tensor_is_not_sent_to_each_worker() -> None:
    assert pickled_bytes(torch.zeros(1 << 20)) < 1 << 16
    assert pickled_bytes(np.zeros(1 << 17)) >= 1 << 20


def test_what_can_be_pickled_is_not_named() -> None:
    assert find_unpicklable(Holder(a=[1, "x"], b=Clean(lock=threading.Lock())), "d") is None
    assert pickled_bytes(np.zeros(1_000_000)) == pytest.approx(8_000_000, rel=0.01)


def test_open_files_are_found_by_the_name_of_their_part(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    with (
        np.load(tmp_path / "a.npz") as archive,
        open(tmp_path / "a.npz", "rb") as file,
        open(tmp_path / "a.npz", "rb") as closed,
    ):
        closed.close()
        value = Holder(archive=archive, inner={"file": file}, closed=closed, path=tmp_path)
        found = {one.name: one for one in find_handles(d=value)}
        assert set(found) == {"d.archive", "d.inner['file']"}
        assert found["d.archive"].kind == "NpzFile"
        assert found["d.archive"].path == str(tmp_path / "a.npz")
        assert found["d.archive"].address == id(archive)


def test_a_data_base_is_not_for_forks(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "x.db")
    connection.execute("create table t (i int)")
    (found,) = find_handles(d=Holder(db=connection))
    assert (found.name, found.is_forbidden, found.path) == ("d.db", True, str(tmp_path / "x.db"))
    connection.close()


def test_what_all_items_share_is_copied_once() -> None:
    settings = {f"name{at}": [str(at)] for at in range(1000)}
    ((size, _, _),) = copied_by_fork([(settings, 1) for _ in range(50_000)], "items")
    assert size < 50_000 * 100


def test_objects_are_copied_by_a_fork_and_arrays_are_not() -> None:
    many = [(f"/data/{at:07d}", at) for at in range(200_000)]
    value = Holder(items=many, array=np.ones(10_000_000), same=[0] * 500_000)
    (size, name, count), (same_size, same, _) = copied_by_fork(value, "d")
    assert (name, count, same) == ("d.items", 200_000, "d.same")
    assert size == pytest.approx(200_000 * (56 + 62 + 28), rel=0.5)
    assert same_size < 4 << 20
    assert copied_by_fork(Holder(array=value.array, few=many[:9_000]), "d") == []


class Unmade:
    """A proxy of what is made when it is asked for, and here cannot be made yet."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise LookupError("asked for outside of a request")


def test_what_a_part_refers_to_need_not_be_there(tmp_path: Path) -> None:
    (tmp_path / "open").touch()
    with open(tmp_path / "open", "rb") as file:
        value = Holder(gone=weakref.proxy(Holder()), unmade=Unmade(), items=[Unmade()] * 20_000, file=file)
        assert [one.name for one in find_handles(d=value)] == ["d.file"]
        assert [name for _, name, _ in copied_by_fork(value, "d")] == ["d.items"]
        assert find_unpicklable(value, "d") is not None
