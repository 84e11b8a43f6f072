"""NPZ and NPY give what numpy gives, whatever the shape, dtype, order and packing."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from headrace import codecs
from headrace.codecs.inflate import BadStream, Inflater, LibDeflate, ZlibInflater, find_inflater
from headrace.errors import DecodeError

from .references import DEFLATED, STORED, npy_bytes, npz_bytes

DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?"),
    hnp.complex_number_dtypes(),
    hnp.datetime64_dtypes(max_period="s", min_period="s"),
    st.just(np.dtype([("x", "<f4"), ("n", "<i8", (2,))])),
    st.just(np.dtype("S5")),
    st.just(np.dtype("U3")),
)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=7)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    dtype, shape = draw(DTYPES), draw(SHAPES)
    rng = np.random.default_rng(draw(st.integers(0, 100)))
    raw = rng.integers(0, 2 if dtype.kind in "bSU" else 120, int(np.prod(shape)) * dtype.itemsize).astype(np.uint8)
    if dtype.kind == "U":
        raw = raw.copy()
        raw[:] = 0
    array = np.frombuffer(raw.tobytes(), dtype).reshape(shape) if raw.size else np.empty(shape, dtype)
    return np.asfortranarray(array) if draw(st.booleans()) else array


def same(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    assert ours.tobytes() == theirs.tobytes()
    assert ours.flags.aligned


@given(
    arrays=st.dictionaries(st.sampled_from(["a", "feat", "名", "x/y"]), arrays(), min_size=1),
    method=st.sampled_from([STORED, DEFLATED]),
)
def test_npz_is_numpys(arrays: dict[str, np.ndarray], method: int) -> None:
    data = npz_bytes(arrays, method)
    with np.load(io.BytesIO(data)) as archive:
        expected = {name: archive[name] for name in archive.files}
    got = codecs.npz(data)
    assert got.keys() == expected.keys()
    for name, array in expected.items():
        same(got[name], array)
        same(codecs.npz(memoryview(data), name), array)
        out = np.empty(array.shape, array.dtype)
        assert codecs.npz(bytearray(data), name, out=out) is out
        same(out, np.ascontiguousarray(array).reshape(array.shape))


@given(array=arrays(), version=st.sampled_from([None, (2, 0), (3, 0)]))
def test_npy_is_numpys(array: np.ndarray, version: Any) -> None:
    data = npy_bytes(array, version)
    same(codecs.npy(data), np.load(io.BytesIO(data)))


def test_a_stored_member_is_a_view_and_a_path_is_read(tmp_path: Path) -> None:
    feat = np.arange(1000, dtype=np.float16)
    data = npz_bytes({"feat": feat}, STORED)
    array = codecs.npz(data, "feat")
    assert np.shares_memory(array, np.frombuffer(data, np.uint8))
    assert not array.flags.writeable
    path = tmp_path / "x.npz"
    path.write_bytes(data)
    from_path = codecs.npz(path, "feat")
    assert from_path.flags.writeable
    same(from_path, feat)
    same(codecs.npz(str(path))["feat"], feat)


def test_a_large_file_is_read_only_where_it_is_asked_for(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    big, small = rng.integers(0, 255, 6 << 20).astype(np.uint8), np.arange(10)
    for method in (STORED, DEFLATED):
        path = tmp_path / f"{method}.npz"
        path.write_bytes(npz_bytes({"big": big, "small": small}, method))
        with path.open("r+b") as file:  # damage in the member that nobody asks for
            file.seek(1 << 20)
            file.write(b"damage")
        same(codecs.npz(path, "small"), small)
        with pytest.raises(DecodeError, match=r"npz: array 'big'"):
            codecs.npz(path, "big")


def test_something_before_the_archive_and_a_comment_after_it() -> None:
    import zipfile

    data = npz_bytes({"a": np.arange(5)})
    buffer = io.BytesIO(data)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = b"made by a tool"
    same(codecs.npz(b"#!prefix\n" + buffer.getvalue(), "a"), np.arange(5))


def test_sixty_four_bit_sizes_are_read() -> None:
    # numpy writes 64-bit fields into local headers always; here they are in the directory too
    import struct
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", npy_bytes(np.arange(7)))
    data = bytearray(buffer.getvalue())
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as archive:
        (info,), at = archive.infolist(), archive.start_dir
    extra = struct.pack("<HHQQQ", 1, 24, info.file_size, info.compress_size, info.header_offset)
    struct.pack_into("<LL", data, at + 20, 0xFFFFFFFF, 0xFFFFFFFF)
    struct.pack_into("<H", data, at + 30, len(extra))
    struct.pack_into("<L", data, at + 42, 0xFFFFFFFF)
    entry_end = at + 46 + len(info.filename)
    directory = bytes(data[at:entry_end]) + extra
    wide = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, len(directory), at)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, at + len(directory), 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    whole = bytes(data[:at]) + directory + wide + locator + end
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        assert archive.testzip() is None
    same(codecs.npz(whole, "a"), np.arange(7))


def test_pickled_objects_are_refused() -> None:
    buffer = io.BytesIO()
    np.savez(buffer, a=np.array([{"x": 1}, None], dtype=object))
    with pytest.raises(DecodeError, match="Python objects"):
        codecs.npz(buffer.getvalue(), "a", name="shard.tar/001.npz")


def test_errors_name_what_was_read() -> None:
    data = npz_bytes({"feat": np.arange(100)})
    with pytest.raises(KeyError, match=r"001\.npz holds no array 'volume'; there are: feat"):
        codecs.npz(data, "volume", name="001.npz")
    with pytest.raises(DecodeError, match=r"001\.npz: not a zip archive, or cut short"):
        codecs.npz(data[:-30], name="001.npz")
    broken = bytearray(data)
    broken[100] ^= 0xFF
    with pytest.raises(DecodeError, match=r"001\.npz: array 'feat'"):
        codecs.npz(broken, name="001.npz")


@pytest.mark.parametrize("out", [np.empty(5, np.int64), np.empty(100, np.int8)])
def test_an_out_that_does_not_fit_is_refused(out: np.ndarray) -> None:
    with pytest.raises(ValueError, match="out has"):
        codecs.npz(npz_bytes({"a": np.linspace(0, 1, 100)}), "a", out=out)


# ------------------------------------------------------------------ the libraries underneath keep one contract


@pytest.fixture(params=["found", "zlib"])
def inflater(request: pytest.FixtureRequest) -> Inflater:
    if request.param == "zlib":
        return ZlibInflater()
    found = find_inflater()
    assert isinstance(found, LibDeflate), "the deflate package is part of the extra 'dev'"
    return found


@given(data=st.binary(max_size=3000), level=st.integers(0, 9))
def test_inflaters_give_the_same(data: bytes, level: int) -> None:
    import gzip
    import zlib

    machine = zlib.compressobj(level, wbits=-15)
    packed = memoryview(machine.compress(data) + machine.flush())
    members = memoryview(gzip.compress(data[:100]) + gzip.compress(data[100:]) + b"\0" * 7)
    for inflater in (find_inflater(), ZlibInflater()):
        assert inflater.crc32(memoryview(data)) == zlib.crc32(data)
        out = np.empty(len(data), np.uint8)
        inflater.inflate(packed, out)
        assert out.tobytes() == data
        for wrong in (len(data) + 1, len(data) - 1):
            if wrong >= 0:
                with pytest.raises(BadStream):
                    inflater.inflate(packed, np.empty(wrong, np.uint8))
        part = np.empty(len(data) * 2 // 3, np.uint8)  # the rest of the stream is not wanted, only checked
        for wanted in (out, part):
            wanted[:] = 0
            inflater.gunzip(members, wanted)
            assert wanted.tobytes() == data[: len(wanted)]
        with pytest.raises(BadStream):
            inflater.gunzip(members, np.empty(len(data) + 1, np.uint8))


def test_a_wrong_check_sum_is_seen(inflater: Inflater) -> None:
    import gzip

    packed = bytearray(gzip.compress(bytes(range(256)) * 40))
    packed[-6] ^= 1
    with pytest.raises(BadStream):
        inflater.gunzip(memoryview(packed), np.empty(256 * 40, np.uint8))
