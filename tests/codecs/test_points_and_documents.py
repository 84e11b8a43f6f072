"""Point clouds are numpy's, chosen points are fancy indexing's; texts and JSON say where they are wrong."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import codecs
from headrace.errors import DecodeError

from .references import npy_bytes


@given(
    num=st.integers(0, 50),
    columns=st.integers(1, 6),
    dtype=st.sampled_from(["<f4", "<f8", "<i2"]),
    as_npy=st.booleans(),
    drawn=st.lists(st.integers(0, 49), max_size=20),
)
def test_points_are_numpys(
    num: int, columns: int, dtype: str, as_npy: bool, drawn: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    cloud = np.random.default_rng(0).normal(0, 50, (num, columns)).astype(dtype)
    data = npy_bytes(cloud) if as_npy else cloud.tobytes()
    path = tmp_path_factory.mktemp("points") / "scan.bin"
    path.write_bytes(data)
    chosen = [k % num for k in drawn] if num else []
    for given_data in (data, memoryview(data), path):
        assert np.array_equal(codecs.points(given_data, columns=columns, dtype=dtype), cloud)
        some = codecs.points(given_data, columns=columns, dtype=dtype, choose=np.array(chosen, int))
        assert np.array_equal(some, cloud[chosen])
        out = np.empty((len(chosen), columns), dtype)
        told = []

        def choose(n: int, told: list[int] = told) -> list[int]:
            told.append(n)
            return chosen

        assert codecs.points(given_data, columns=columns, dtype=dtype, choose=choose, out=out) is out
        assert np.array_equal(out, cloud[chosen])
        assert told == [num]


def test_points_of_another_form_are_told(tmp_path: Path) -> None:
    path = tmp_path / "scan.bin"
    path.write_bytes(bytes(30))
    with pytest.raises(DecodeError, match=r"scan\.bin: the point cloud is cut short"):
        codecs.points(path)
    with pytest.raises(IndexError, match="there are 2"):
        codecs.points(bytes(32), choose=[0, 2])
    with pytest.raises(IndexError, match="points -1"):
        codecs.points(bytes(32), choose=[-1])
    with pytest.raises(TypeError, match="whole numbers"):
        codecs.points(bytes(32), choose=[0.5])


def test_all_points_of_a_file_are_the_callers_own(tmp_path: Path) -> None:
    path = tmp_path / "scan.bin"
    cloud = np.arange(40, dtype=np.float32).reshape(-1, 4)
    cloud.tofile(path)
    first, second = codecs.points(path), codecs.points(path)
    first[:] = 0
    assert np.array_equal(second, cloud)


def test_a_sequence_of_scans_is_put_together_in_memory_that_is_used_again(tmp_path: Path) -> None:
    clouds = [np.random.default_rng(k).normal(size=(20_000, 4)).astype(np.float32) for k in range(4)]
    for k, cloud in enumerate(clouds):
        cloud.tofile(tmp_path / f"{k}.bin")

    def sequence() -> np.ndarray:
        together = codecs.empty((4, 20_000, 4))
        for k in range(4):
            codecs.points(tmp_path / f"{k}.bin", choose=np.arange(20_000), out=together[k])
        return together

    first = sequence()
    address, part = first.ctypes.data, first[2, 5:9]
    assert address % 64 == 0
    assert np.array_equal(first, clouds)
    del first
    second = sequence()
    assert second.ctypes.data != address, "a view of the first is still held"
    assert np.array_equal(part, clouds[2][5:9])
    del part
    assert sequence().ctypes.data == address
    assert codecs.empty(3, "u1").shape == (3,)
    with pytest.raises(TypeError, match="Python objects"):
        codecs.empty((2, 2), object)


def test_texts() -> None:
    assert codecs.text("头颅 CT：未见异常".encode()) == "头颅 CT：未见异常"
    assert codecs.text(b"\xef\xbb\xbfwith a mark") == "with a mark"
    assert codecs.text("头".encode("gbk"), encoding="gbk") == "头"
    with pytest.raises(DecodeError, match=r"report\.txt: not utf-8-sig text") as caught:
        codecs.text(b"good until \xff", name="report.txt")
    assert caught.value.evidence["offset"] == 11


def test_documents(tmp_path: Path) -> None:
    path = tmp_path / "meta.json"
    path.write_text('{"id": 3, "spacing": [0.7, 0.7, 1.5]}')
    assert codecs.json(path) == {"id": 3, "spacing": [0.7, 0.7, 1.5]}
    with pytest.raises(DecodeError, match="not JSON") as caught:
        codecs.json(b'{"id": 3,\n "x": }')
    assert (caught.value.evidence["line"], caught.value.evidence["column"]) == (2, 7)
    for bomb in (b"[" * 200_000, b"1" * 100_000):
        with pytest.raises(DecodeError):
            codecs.json(bomb)
