"""JPEG and PNG give the pixels of other decoders, in the wanted part, size and layout."""

import io
from pathlib import Path

import cv2
import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from headrace import codecs
from headrace.errors import DecodeError

from .references import photo, pil_bytes

SIZES = st.tuples(st.integers(1, 70), st.integers(1, 70))


@given(
    size=SIZES,
    quality=st.integers(30, 100),
    subsampling=st.sampled_from(["444", "422", "420", "440", "411", "Gray"]),
    progressive=st.booleans(),
)
def test_jpeg_is_libjpeg_turbos(size: tuple[int, int], quality: int, subsampling: str, progressive: bool) -> None:
    pixels = photo(*size)
    if subsampling == "Gray":
        data = simplejpeg.encode_jpeg(pixels[..., :1].copy(), quality, "GRAY", "Gray")
    elif progressive and subsampling in ("444", "422", "420"):
        data = pil_bytes(
            pixels, "JPEG", quality=quality, subsampling=["444", "422", "420"].index(subsampling), progressive=True
        )
    else:
        data = simplejpeg.encode_jpeg(pixels, quality, "RGB", subsampling)
    ours = codecs.jpeg(data)
    assert np.array_equal(ours, simplejpeg.decode_jpeg(data, "RGB"))
    # Pillow has a libjpeg-turbo of its own version: chroma may differ by rounding
    theirs = np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)
    assert np.abs(ours.astype(int) - theirs).max() <= 3
    out = np.empty_like(ours)
    assert codecs.jpeg(memoryview(data), out=out) is out
    assert np.array_equal(out, ours)
    assert np.array_equal(codecs.jpeg(data, mode="gray"), simplejpeg.decode_jpeg(data, "GRAY"))
    planes = codecs.jpeg(data, layout="chw")
    assert planes.flags.c_contiguous
    assert np.array_equal(planes, ours.transpose(2, 0, 1))


@given(
    size=SIZES,
    target=SIZES,
    region=st.tuples(*[st.integers(0, 69)] * 4),
    orientation=st.integers(1, 8),
    layout=st.sampled_from(["hwc", "chw"]),
    gray=st.booleans(),
    gives_out=st.booleans(),
)
@settings(max_examples=150)
def test_turned_cut_resized(
    size: tuple[int, int],
    target: tuple[int, int],
    region: tuple[int, int, int, int],
    orientation: int,
    layout: str,
    gray: bool,
    gives_out: bool,
) -> None:
    exif = Image.Exif()
    exif[0x112] = orientation
    data = pil_bytes(photo(*size), "JPEG", quality=92, exif=exif)
    turned = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    height, width = turned.shape[:2]
    top, left = region[0] % height, region[1] % width
    part = (top, left, 1 + region[2] % (height - top), 1 + region[3] % (width - left))

    decoded = simplejpeg.decode_jpeg(data, "GRAY" if gray else "RGB")
    back = Image.fromarray(decoded.squeeze(2) if gray else decoded)
    back.getexif()[0x112] = orientation
    expected = np.asarray(_transpose(back, orientation)).reshape(height, width, -1)
    expected = expected[part[0] : part[0] + part[2], part[1] : part[1] + part[3]]
    expected = cv2.resize(np.ascontiguousarray(expected), target[::-1], interpolation=cv2.INTER_LINEAR)
    expected = expected.reshape(*target, -1)
    if layout == "chw":
        expected = expected.transpose(2, 0, 1)
    out = np.empty(expected.shape, np.uint8) if gives_out else None
    ours = codecs.jpeg(
        data, mode="gray" if gray else "rgb", size=target, region=part, orient=True, layout=layout, out=out
    )  # type: ignore[call-overload]
    assert np.array_equal(ours, expected)
    assert out is None or ours is out


def _transpose(image: Image.Image, orientation: int) -> Image.Image:
    steps = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}  # Pillow's Transpose of each orientation
    return image.transpose(Image.Transpose(steps[orientation])) if orientation > 1 else image


@pytest.mark.parametrize("shrink", [2, 4, 8])
@pytest.mark.parametrize("size", [(64, 48), (65, 49), (7, 90), (1500, 2250)])
def test_shrunk_is_libjpegs_scaled_decode(shrink: int, size: tuple[int, int]) -> None:
    data = pil_bytes(photo(*size), "JPEG", quality=90)
    ours = codecs.jpeg(data, shrink=shrink)  # type: ignore[arg-type]
    image = Image.open(io.BytesIO(data))
    image.draft("RGB", (-(-size[1] // shrink), -(-size[0] // shrink)))
    theirs = np.asarray(image)
    assert ours.shape == (-(-size[0] // shrink), -(-size[1] // shrink), 3)
    if theirs.shape == ours.shape:
        assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 3


def test_auto_shrinks_as_far_as_the_size_allows() -> None:
    data = pil_bytes(photo(400, 600), "JPEG", quality=90)
    for size, shrink in (((201, 100), 1), ((200, 300), 2), ((100, 100), 4), ((50, 75), 8), ((10, 10), 8)):
        ours = codecs.jpeg(data, size=size, shrink="auto")
        assert np.array_equal(ours, codecs.jpeg(data, size=size, shrink=shrink))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs size="):
        codecs.jpeg(data, shrink="auto")


def test_printers_colours() -> None:
    pixels = np.concatenate([photo(40, 30), photo(40, 30, seed=1)[..., :1]], axis=2)
    buffer = io.BytesIO()
    Image.frombytes("CMYK", (30, 40), pixels.tobytes()).save(buffer, "JPEG", quality=95)
    theirs = np.asarray(Image.open(io.BytesIO(buffer.getvalue())).convert("RGB")).astype(int)
    ours = codecs.jpeg(buffer.getvalue())
    assert np.abs(ours.astype(int) - theirs).max() <= 2
    assert codecs.jpeg(buffer.getvalue(), mode="gray").shape == (40, 30, 1)


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.9, 0.999])
def test_a_jpeg_that_is_cut_short_is_an_error(kept: float, tmp_path: Path) -> None:
    data = pil_bytes(photo(200, 200), "JPEG", quality=90)
    path = tmp_path / "cut.jpg"
    path.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(DecodeError, match=r"cut\.jpg"):
        codecs.jpeg(path)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"region": (0, 0, 41, 10)}, "not inside"),
        ({"size": (0, 10)}, "at least 1"),
        ({"mode": "cmyk"}, "choose 'rgb'"),
        ({"shrink": 3}, "choose 1, 2, 4, 8"),
        ({"layout": "nchw"}, "choose 'hwc'"),
        ({"out": np.empty((3, 3, 3), np.uint8)}, "out has shape"),
    ],
)
def test_misuse_is_told(options: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        codecs.jpeg(pil_bytes(photo(40, 30), "JPEG"), **options)  # type: ignore[arg-type]


# ------------------------------------------------------------------ PNG


@given(size=SIZES, mode=st.sampled_from(["RGB", "L", "RGBA", "P", "1", "LA"]), seed=st.integers(0, 3))
def test_png_is_pillows(size: tuple[int, int], mode: str, seed: int) -> None:
    pixels = photo(*size, seed=seed)
    data = pil_bytes(pixels, "PNG", mode)
    theirs = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    ours = codecs.png(data)
    assert np.array_equal(ours, theirs)
    out = np.empty((3, *size), np.uint8)
    assert codecs.png(memoryview(data), layout="chw", out=out) is out
    assert np.array_equal(out, theirs.transpose(2, 0, 1))
    if mode in ("RGB", "L", "RGBA"):
        kept = np.asarray(Image.open(io.BytesIO(data))).reshape(*size, -1)
        assert np.array_equal(codecs.png(data, mode="unchanged"), kept)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_sixteen_bits_stay(channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 65535, (20, 30, channels)).astype(np.uint16)
    order = {1: [0], 3: [2, 1, 0], 4: [2, 1, 0, 3]}[channels]
    data = cv2.imencode(".png", pixels[..., order])[1].tobytes()
    ours = codecs.png(data, mode="unchanged")
    assert ours.dtype == np.uint16
    assert np.array_equal(ours, pixels)
    labels = codecs.png(data, mode="unchanged", region=(2, 3, 10, 20), layout="chw")
    assert np.array_equal(labels, pixels[2:12, 3:23].transpose(2, 0, 1))


def test_a_png_whose_pixels_end_early_is_an_error() -> None:
    import struct
    import zlib

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">L", len(body)) + kind + body + struct.pack(">L", zlib.crc32(kind + body))

    rows = b"".join(b"\0" + bytes(60) for _ in range(10))
    for packed in (zlib.compress(rows), zlib.compress(rows)[:-8]):
        data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2L5B", 20, 20, 8, 2, 0, 0, 0))
        data += chunk(b"IDAT", packed) + chunk(b"IEND", b"")
        with pytest.raises(DecodeError, match=r"half\.png"):
            codecs.png(data, name="half.png")


def test_a_png_ends_at_its_end_and_keeps_its_transparency() -> None:
    palette = Image.fromarray(photo(20, 30)).quantize(4)
    buffer = io.BytesIO()
    palette.save(buffer, "PNG", transparency=bytes([0, 100, 200, 255]))
    data = buffer.getvalue()
    whole = codecs.png(data, mode="unchanged")
    assert whole.shape == (20, 30, 4)
    assert np.array_equal(codecs.png(data + b"what a camera adds", mode="unchanged"), whole)
    at = data.index(b"tRNS")
    for place in range(at - 4, at + 12):  # libpng drops a chunk that it doubts, and all would be opaque
        broken = bytearray(data)
        broken[place] ^= 1
        with pytest.raises(DecodeError):
            codecs.png(bytes(broken), mode="unchanged")


def test_a_png_that_is_cut_short_is_told_from_a_damaged_one() -> None:
    data = pil_bytes(photo(20, 30), "PNG")
    for cut in (40, len(data) // 2, len(data) - 12, len(data) - 1):
        with pytest.raises(DecodeError, match="the PNG is cut short"):
            codecs.png(data[:cut])
    broken = bytearray(data)
    broken[len(data) // 2] ^= 1
    with pytest.raises(DecodeError, match="a chunk's CRC is wrong"):
        codecs.png(bytes(broken))
