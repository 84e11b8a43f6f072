"""Shards give each sample once, by index and as a stream, whatever the order of members, the pairing and the loader."""

from __future__ import annotations

import logging
import os
import pickle
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.utils.data
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace
from headrace import codecs
from headrace.errors import DecodeError, NotSupported, UnusableInput
from headrace.storage.reading import Extent
from headrace.storage.reading.extents import install_source
from headrace.storage.shards import Shards

from ..tars import expected, pairs, write_tar


@pytest.fixture
def three(tmp_path: Path) -> str:
    """Three shards of 5, 7 and 3 samples."""
    first = 0
    for number, num in enumerate([5, 7, 3]):
        write_tar(tmp_path / f"x-{number:03d}.tar", pairs(num, first=first))
        first += num
    return str(tmp_path / "x-{000..002}.tar")


def all_of(three: str) -> list[dict[str, Any]]:
    folder, found, first = os.path.dirname(three), [], 0
    for number, num in enumerate([5, 7, 3]):
        found += expected(pairs(num, first=first), f"{folder}/x-{number:03d}.tar")
        first += num
    return found


def test_a_shard_of_metadata_alone(tmp_path: Path) -> None:
    shards = Shards(write_tar(tmp_path / "m.tar", [("__meta__/x.json", b"{}")]))
    assert (len(shards), shards.num_unpaired, list(iter(shards))) == (0, 0, [])


def test_by_index_and_as_a_stream(three: str) -> None:
    # `list(shards)` asks for the length first, which makes the index; an iterator has none
    assert list(iter(Shards(three))) == all_of(three)
    shards = Shards(three)
    assert len(shards) == 15
    assert [shards[k] for k in range(15)] == all_of(three)
    assert [shards[k - 15] for k in range(15)] == all_of(three)
    assert shards[np.int64(7)] == all_of(three)[7]
    assert list(iter(shards)) == all_of(three)
    for index in (15, -16):
        with pytest.raises(IndexError):
            _ = shards[index]
    assert "15 samples" in repr(shards)


def test_a_batch_at_once(three: str) -> None:
    shards = Shards(three)
    fetch = shards.__getitems__
    assert fetch is not None
    order = [14, 0, 3, 3, 7, -1, 6]
    assert fetch(order) == [all_of(three)[k] for k in order]
    assert fetch(range(15)) == all_of(three)
    with pytest.raises(IndexError):
        fetch([15])


def test_large_samples_have_no_batch_at_once(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", pairs(3, size=100_000))
    shards = Shards(tmp_path / "a.tar")
    assert shards.__getitems__ is None
    assert [shards[k] for k in range(3)] == expected(pairs(3, size=100_000), tmp_path / "a.tar")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.integers(1, 12), st.booleans())
def test_any_order_of_members_gives_the_same_samples(tmp_path: Path, seed: int, num: int, far: bool) -> None:
    members = pairs(num, size=70_000 if far else 50)
    random.Random(seed).shuffle(members)
    path = write_tar(tmp_path / "a.tar", members)
    shards = Shards(path, index_dir=tmp_path / f"{seed}-{num}-{far}")
    wanted = expected(members, path)
    assert [shards[k] for k in range(len(shards))] == wanted
    assert list(iter(shards)) == wanted
    streamed = list(iter(Shards(path, fields=["jpg", "cls"], index_dir=tmp_path / f"other-{seed}-{num}-{far}")))
    assert sorted(streamed, key=str) == sorted(
        ({"__key__": s["__key__"], "__url__": s["__url__"], "jpg": s["jpg"], "cls": s["cls"]} for s in wanted), key=str
    )


def test_a_stream_without_index_finds_members_that_lie_apart(tmp_path: Path) -> None:
    members = sorted(pairs(4, size=5_000_000), key=lambda member: member[0].partition(".")[2], reverse=True)
    path = write_tar(tmp_path / "a.tar", members)
    assert list(iter(Shards(path))) == expected(members, path)
    assert Path(f"{path}.hri").exists()  # it is there for the next time


def test_reads_go_through_the_seam_and_are_those_that_were_told(three: str) -> None:
    shards = Shards(three).prepare()
    reads: list[Extent] = []

    def note(extent: Extent) -> None:
        reads.append(extent)

    before = install_source(note)
    try:
        fetch = shards.__getitems__
        assert fetch is not None
        samples = [shards[0], *fetch([3, 11])]
    finally:
        install_source(before)
    assert samples == [all_of(three)[k] for k in (0, 3, 11)]
    assert reads == [extent for k in (0, 3, 11) for extent in shards.extents(k)]


def test_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", pairs(3, size=200_000))
    shards = Shards(path, fields=["cls"])
    assert [shards[k] for k in range(3)] == [
        {"__key__": f"{k:04d}", "__url__": str(path), "cls": str(k).encode()} for k in range(3)
    ]
    assert sum(extent.size for k in range(3) for extent in shards.extents(k)) == 3
    assert list(iter(shards)) == [shards[k] for k in range(3)]


def test_samples_without_a_field_are_unpaired(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    members = [m for m in pairs(4) if m[0] != "0002.cls"] + [("noext", b"?"), ("__meta__/x.json", b"{}")]
    path = write_tar(tmp_path / "a.tar", [*members, ("0001.jpg", b"again")])
    with caplog.at_level(logging.WARNING):
        shards = Shards(path, fields=["jpg", "cls"])
        assert [sample["__key__"] for sample in shards] == ["0000", "0001", "0003"]
        assert len(shards) == 3
    assert [shards[k]["__key__"] for k in range(3)] == ["0000", "0001", "0003"]
    assert shards.num_unpaired == 3
    assert [(member.name, member.reason) for member in shards.unpaired] == [
        ("0002.jpg", "its sample has no cls"),
        ("noext", "no rule fits its name"),
        ("0001.jpg", "its sample has this field already"),
    ]
    assert "3 members in 1 shards are in no sample" in caplog.text
    assert len(Shards(path)) == 4  # without fields, a sample is what there is of it


def test_patterns_pair_what_the_first_dot_does_not(tmp_path: Path) -> None:
    members = [
        *[("a/7.jpg", b"J7"), ("a/7_features.npz", b"N7"), ("a/7.json", b"{}")],
        *[("a/8_features.npz", b"N8"), ("a/8.jpg", b"J8"), ("a/9.jpg", b"J9"), ("readme", b"")],
    ]
    path = write_tar(tmp_path / "a.tar", members)
    rule = {"jpg": "{key}.jpg", "npz": "{key}_features.npz", "json": "{key}.json?"}
    wanted = [
        {"__key__": "a/7", "__url__": str(path), "jpg": b"J7", "npz": b"N7", "json": b"{}"},
        {"__key__": "a/8", "__url__": str(path), "jpg": b"J8", "npz": b"N8"},
    ]
    assert list(iter(Shards(path, pairing=rule))) == wanted  # as a stream, without an index
    shards = Shards(path, pairing=rule)
    assert [shards[k] for k in range(len(shards))] == wanted
    assert [(m.name, m.reason) for m in shards.unpaired] == [
        ("a/9.jpg", "its sample has no npz"),
        ("readme", "no rule fits its name"),
    ]


def test_the_most_specific_pattern_counts(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("7_mask.png", b"M"), ("7.png", b"P")])
    (sample,) = Shards(path, pairing={"png": "{key}.png", "mask": "{key}_mask.png"})
    assert sample == {"__key__": "7", "__url__": str(path), "png": b"P", "mask": b"M"}


def test_frames_make_a_sequence(tmp_path: Path) -> None:
    members = [(f"drive1/{k}.bin", b"%d" % k) for k in (10, 2, 1)] + [("drive1.json", b"{}"), ("drive2/5.bin", b"5")]
    path = write_tar(tmp_path / "a.tar", members)
    for shards in (Shards(path, pairing={"scans": "{key}/{frame}.bin", "json": "{key}.json?"}) for _ in range(2)):
        assert list(iter(shards)) == [
            {"__key__": "drive1", "__url__": str(path), "scans": [b"1", b"2", b"10"], "json": b"{}"},
            {"__key__": "drive2", "__url__": str(path), "scans": [b"5"]},
        ]
    indexed = Shards(path, pairing={"scans": "{key}/{frame}.bin", "json": "{key}.json?"}, fields=["scans"])
    assert indexed[0] == {"__key__": "drive1", "__url__": str(path), "scans": [b"1", b"2", b"10"]}


def test_a_rule_that_means_nothing_is_refused(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", pairs(1))
    wrong: list[Any] = ["dots", {}, {"jpg": "x.jpg"}, {"jpg": "{key}{key}.jpg"}, {"jpg": "{key}.{ext}"}]
    for pairing in wrong:
        with pytest.raises(ValueError, match="pairing"):
            Shards(path, pairing=pairing)


def _as_text(data: Any) -> str:
    assert type(data) is bytes
    return data.decode()


def test_decode_and_map(three: str) -> None:
    by_field = Shards(three, decode={"cls": _as_text}, map=lambda sample: (sample["__key__"], sample["cls"]))
    assert by_field[4] == ("0004", "4")
    assert list(by_field)[4] == ("0004", "4")
    ours = Shards(three, decode=headrace.decode("cls"))
    assert ours.fields == ("cls",)
    assert ours[4] == {"__key__": "0004", "cls": 4, "__url__": all_of(three)[4]["__url__"]}
    with pytest.raises(ValueError, match="invalid literal") as caught:
        _ = Shards(three, decode={"jpg": int})[2]
    assert "while decoding 0002.jpg" in caught.value.__notes__[0]
    with pytest.raises(DecodeError, match=r"0002\.jpg"):
        _ = Shards(three, decode=headrace.decode("jpg"))[2]


def test_our_codecs_get_views_and_others_bytes(three: str) -> None:
    def kind(data: Any) -> str:
        return type(data).__name__

    assert Shards(three, decode=headrace.decode("cls"))._as_views
    assert Shards(three, decode=headrace.decode(txt=partial(codecs.text)))._as_views
    assert Shards(three, decode=headrace.decode(cls=kind))[0]["cls"] == "bytes"
    assert Shards(three, decode={"cls": kind}, views=True)[0]["cls"] == "memoryview"


def test_max_samples(three: str) -> None:
    for num in (0, 4, 6, 100):
        shards = Shards(three, max_samples=num)
        assert len(shards) == min(num, 15)
        assert list(iter(shards)) == all_of(three)[:num]
        assert [shards[k] for k in range(len(shards))] == all_of(three)[:num]
    with pytest.raises(ValueError, match="max_samples=-1"):
        Shards(three, max_samples=-1)


def test_it_pickles_small_and_opens_anew(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", pairs(2000, size=1))
    shards = Shards(path)
    first = shards[1234]
    copy = pickle.loads(pickle.dumps(shards))
    assert len(pickle.dumps(shards)) < 4096
    assert copy[1234] == first


@pytest.mark.parametrize(("library", "start_method"), [("torch", "fork"), ("headrace", "fork"), ("headrace", "spawn")])
def test_with_a_loader(library: str, start_method: str, three: str) -> None:
    shards = Shards(three, fields=["cls"], decode={"cls": int})
    _ = shards[0]  # the parent has files open when it forks
    kind: Any = torch.utils.data.DataLoader if library == "torch" else headrace.DataLoader
    generator = torch.Generator().manual_seed(0)
    loader = kind(
        shards, batch_size=4, shuffle=True, num_workers=2, multiprocessing_context=start_method, generator=generator
    )
    batches = list(loader)
    assert sorted(int(k) for batch in batches for k in batch["cls"]) == list(range(15))
    for batch in batches:
        assert [int(key) for key in batch["__key__"]] == batch["cls"].tolist()


def test_inside_a_subset_a_failure_is_placed(three: str) -> None:
    from headrace.engine.losses.sample_names import place_sample

    shards = Shards(three)
    subset = torch.utils.data.Subset(torch.utils.data.ConcatDataset([shards, shards]), [17, 3])
    place = place_sample(subset, 0)
    assert place == shards.place(2)
    assert place is not None
    assert place.key == "0002"
    assert place_sample(range(3), 1) is None


NAMED: list[tuple[Any, list[str]]] = [
    ("x-*.tar", ["x-000.tar", "x-001.tar", "x-002.tar"]),
    ("x-{002,000}.tar", ["x-002.tar", "x-000.tar"]),
    ("x-00[12].tar", ["x-001.tar", "x-002.tar"]),
    (["x-001.tar", "x-{000..000}.tar"], ["x-001.tar", "x-000.tar"]),
    ("", ["x-000.tar", "x-001.tar", "x-002.tar"]),
]


def test_shards_are_named_as_people_do(three: str) -> None:
    folder = os.path.dirname(three)
    for written, names in NAMED:
        urls = [f"{folder}/{one}" for one in written] if isinstance(written, list) else f"{folder}/{written}"
        assert [os.path.basename(path) for path in Shards(urls).paths] == names


NOT_THERE: list[tuple[Any, type[Exception], str]] = [
    ("nowhere-*.tar", UnusableInput, "no shard fits"),
    ("nowhere-{0..3}.tar", UnusableInput, "4 of 4 shards are not there"),
    ([], UnusableInput, "empty"),
    ("x-{a,{b,c}}.tar", NotSupported, "braces inside of braces"),
    ("x-{0..99999999}.tar", UnusableInput, "more than 10000000 shards"),
    ("s3://bucket/x.tar", NotSupported, "not a local file"),
    ("pipe:cat x.tar", NotSupported, "not a local file"),
]


def test_what_is_not_there_is_said() -> None:
    for written, error, message in NOT_THERE:
        with pytest.raises(error, match=message):
            Shards(written)
