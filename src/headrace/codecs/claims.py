"""What a header claims, held against what its bytes can hold, before any memory is taken for it."""

from __future__ import annotations

from headrace.model import format_bytes

from .source import Source

# 258 bytes from two codes of one bit each: no deflate stream grows by more
DEFLATE_RATIO = 1032
# a block of 128 KiB from 4 bytes
ZSTD_RATIO = 1 << 15
# An 8x8 block of a picture takes at least two codes of one bit in a baseline JPEG; in a progressive one the second may
# stand for 32,767 blocks at once. With chroma halved both ways, 256 pixels of 3 bytes are 6 blocks.
JPEG_RATIO = 1024

# The most that one array may take unless `max_bytes=` says otherwise: a whole-body CT in float32 is 1.5 GB.
MAX_BYTES = 4 << 30


def check_claim(source: Source, claimed: int, *, held: int, ratio: int = 1, max_bytes: int, what: str) -> None:
    """Raise unless `held` encoded bytes can be `claimed` decoded ones, and these are within the limit."""
    if claimed > held * ratio + 1024:
        raise source.damaged(
            f"{what} claims more than its bytes can hold",
            claimed=format_bytes(claimed),
            encoded=format_bytes(held),
            at_most=format_bytes(held * ratio),
        )
    if claimed > max_bytes:
        raise source.damaged(
            f"{what} is larger than allowed",
            size=format_bytes(claimed),
            limit=format_bytes(max_bytes),
            next_step=f"max_bytes={claimed} if this is meant",
        )
