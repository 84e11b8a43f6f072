"""Damaged, cut and lying files: an error that names them or the right data; never a crash, a hang or gigabytes."""

import gzip
import io
import resource
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import nibabel
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import codecs
from headrace.errors import DecodeError

from .references import DEFLATED, STORED, npy_bytes, npz_bytes, photo, pil_bytes

_VOXELS = np.random.default_rng(0).integers(-500, 500, (9, 8, 7)).astype(np.int16)
_NIFTI = nibabel.Nifti1Image(_VOXELS, np.eye(4)).to_bytes()

Decode = Callable[[bytes], Any]
# What each kind of file is, who decodes it, and whether a check sum makes any change of its content an error.
KINDS: dict[str, tuple[bytes, Decode, bool]] = {
    "npz deflated": (npz_bytes({"v": _VOXELS}, DEFLATED), lambda d: codecs.npz(d, "v"), True),
    "npz stored": (npz_bytes({"v": _VOXELS}, STORED), lambda d: codecs.npz(d, "v"), True),
    "npy": (npy_bytes(_VOXELS), codecs.npy, False),
    "jpeg": (pil_bytes(photo(60, 50), "JPEG", quality=90), codecs.jpeg, False),
    "jpeg progressive": (pil_bytes(photo(60, 50), "JPEG", progressive=True), codecs.jpeg, False),
    "png": (pil_bytes(photo(40, 30), "PNG"), codecs.png, True),
    "nifti": (_NIFTI, codecs.nifti, False),
    "nifti packed": (gzip.compress(_NIFTI, mtime=0), codecs.nifti, True),
    "volume": (npz_bytes({"v": _VOXELS}), lambda d: codecs.volume(d, size=(4, 4, 4)), True),
    "points": (npy_bytes(np.zeros((50, 4), np.float32)), codecs.points, False),
    "json": (b'{"id": 3, "spacing": [0.7, 0.7, 1.5]}', codecs.json, False),
}


def _same(one: Any, other: Any) -> bool:
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else bool(one == other)


def outcome(decode: Decode, data: bytes) -> Any:
    """Decode; a refusal must be ours and name what was read."""
    try:
        return decode(data)
    except (DecodeError, KeyError) as error:
        refusal = str(error)
    # a damaged name in the directory of an archive is a missing array
    assert refusal.startswith("bytes: ") or "holds no array" in refusal
    return None


@pytest.mark.parametrize("kind", KINDS)
@given(flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 7)), min_size=1, max_size=4))
@settings(max_examples=120)
def test_flipped_bits(kind: str, flips: list[tuple[float, int]]) -> None:
    data, decode, is_checked = KINDS[kind]
    broken = bytearray(data)
    for place, bit in flips:
        broken[int(place * len(data))] ^= 1 << bit
    got = outcome(decode, bytes(broken))
    if got is not None and is_checked:
        assert _same(got, decode(data))


@pytest.mark.parametrize("kind", KINDS)
def test_cut_anywhere(kind: str) -> None:
    data, decode, _ = KINDS[kind]
    whole = decode(data)
    least = 1 if kind == "points" else 0  # no bytes are a cloud of no points
    for length in {*range(least, len(data), max(1, len(data) // 150)), *range(max(0, len(data) - 12), len(data))}:
        got = outcome(decode, data[:length])
        # only what may follow the content can be missing: a trailing mark, a check sum that nobody needs
        assert got is None or _same(got, whole), f"{kind} cut at {length} of {len(data)}"


@pytest.mark.parametrize("kind", KINDS)
@given(noise=st.binary(max_size=200))
@settings(max_examples=40)
def test_noise(kind: str, noise: bytes) -> None:
    data, decode, _ = KINDS[kind]
    if kind not in ("json", "points"):
        outcome(decode, noise)
        outcome(decode, data[: len(data) // 3] + noise + data[len(data) // 3 :])


# ------------------------------------------------------------------ headers that claim what is not there


def _npy_claiming(shape: tuple[int, ...]) -> bytes:
    header = repr({"descr": "<f8", "fortran_order": False, "shape": shape}).encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(64)


def _zip_of(raw: bytes, *, size: int | None = None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("v.npy", raw)
    data = bytearray(buffer.getvalue())
    if size is not None:
        with zipfile.ZipFile(io.BytesIO(bytes(data))) as archive:
            at = archive.start_dir
        struct.pack_into("<L", data, at + 24, size)
        struct.pack_into("<L", data, 22, size)
    return bytes(data)


def _nifti_claiming(sides: list[int]) -> bytes:
    raw = bytearray(_NIFTI)
    struct.pack_into("<8h", raw, 40, len(sides), *sides, *[1] * (7 - len(sides)))
    return bytes(raw)


def _png_claiming(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">L", len(body)) + kind + body + struct.pack(">L", zlib.crc32(kind + body))

    header = struct.pack(">2L5B", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b"")
    )


def _jpeg_claiming(width: int, height: int) -> bytes:
    data = bytearray(pil_bytes(photo(60, 50), "JPEG", quality=90))
    at = data.index(b"\xff\xc0")
    struct.pack_into(">2H", data, at + 5, height, width)
    return bytes(data)


_HUGE = 200_000
LIES: dict[str, tuple[bytes, Decode]] = {
    "npy": (_npy_claiming((_HUGE, _HUGE)), codecs.npy),
    "npy beyond 64 bits": (_npy_claiming((2**62, 2**62)), codecs.npy),
    "npz, array": (_zip_of(_npy_claiming((_HUGE, _HUGE))), lambda d: codecs.npz(d, "v")),
    "npz, directory": (_zip_of(npy_bytes(_VOXELS), size=3_900_000_000), lambda d: codecs.npz(d, "v")),
    "nifti": (_nifti_claiming([32767, 32767, 32767]), codecs.nifti),
    "nifti, packed": (gzip.compress(_nifti_claiming([32767, 32767, 3])), codecs.nifti),
    "volume": (_nifti_claiming([32767, 32767, 32767]), codecs.volume),
    "png": (_png_claiming(100_000, 100_000), codecs.png),
    "jpeg": (_jpeg_claiming(65_000, 65_000), codecs.jpeg),
    "points": (_npy_claiming((2**50, 4)), codecs.points),
}


@pytest.mark.parametrize("kind", LIES)
def test_a_claim_is_refused_before_memory_is_taken(kind: str) -> None:
    data, decode = LIES[kind]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DecodeError, match=r"^bytes: "):
        decode(data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # kilobytes


def test_a_bomb_is_refused_by_the_limit() -> None:
    # 40 MB of zeros in 40 KB: a true claim, and more than this caller allows
    data = npz_bytes({"v": np.zeros(5_000_000)})
    assert len(data) < 60_000
    with pytest.raises(DecodeError, match="larger than allowed") as caught:
        codecs.npz(data, "v", max_bytes=10_000_000)
    assert "max_bytes=" in caught.value.next_step
    assert codecs.npz(data, "v").sum() == 0
    packed = gzip.compress(nibabel.Nifti1Image(np.zeros((200, 200, 50), np.int16), np.eye(4)).to_bytes())
    with pytest.raises(DecodeError, match="larger than allowed"):
        codecs.volume(packed, max_bytes=1_000_000)


def test_a_member_that_unpacks_to_more_than_it_says() -> None:
    data = _zip_of(npy_bytes(np.zeros(100_000)), size=2000)
    with pytest.raises(DecodeError, match="more than it should"):
        codecs.npz(data, "v")


def test_a_jpeg_of_endless_scans() -> None:
    data = pil_bytes(photo(60, 50), "JPEG", progressive=True)
    at = data.index(b"\xff\xda")
    scan = b"\xff\xda" + struct.pack(">H", 8) + bytes([1, 1, 0, 0, 0, 0])
    with pytest.raises(DecodeError, match="made to be slow"):
        codecs.jpeg(data[:at] + scan * 5000 + data[at:])


def test_deep_and_long_headers() -> None:
    for text in (b"(" * 9000, b"{'descr': " + b"[" * 5000):
        raw = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
        with pytest.raises(DecodeError, match="header"):
            codecs.npy(raw)
    raw = b"\x93NUMPY\x02\x00" + struct.pack("<L", 2**31) + bytes(64)
    with pytest.raises(DecodeError, match="more than 10000"):
        codecs.npy(raw)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=5000, derandomize=False)
def test_damage_at_length(kind: str, data: st.DataObject) -> None:
    whole, decode, is_checked = KINDS[kind]
    broken = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(broken) - 1))
        broken[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        if not broken:
            return
    got = outcome(decode, bytes(broken))
    if got is not None and is_checked:
        assert _same(got, decode(whole))


def test_a_volume_whose_array_lost_its_name_is_damaged() -> None:
    """One flipped bit in the directory, and `v.npy` is no array any more."""
    whole = npz_bytes({"v": _VOXELS})
    at = whole.rindex(b"v.npy") + 4
    broken = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    with pytest.raises(DecodeError, match="without an array"):
        codecs.volume(broken, size=(4, 4, 4))
