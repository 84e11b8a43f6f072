"""What a probe measures is the limit that was set: of a control group, and of a file system of known latency.

Slow, and not part of every run: a busy machine is slower than its limits.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.storage.media import Medium, kind_of, probe
from headrace.storage.media.knee import KneeState

from ..limits import NoLimitHere, limited
from ..slow_fuse import slow_file

MIB = 1 << 20

pytestmark = [pytest.mark.slow, pytest.mark.root]


@pytest.fixture(scope="module")
def large_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("limits") / "data"
    with path.open("wb") as file:
        for _ in range(64):
            file.write(os.urandom(8 * MIB))
        file.flush()
        os.fsync(file.fileno())
    yield path
    path.unlink()


def _probe_apart(path: Path, **limits: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "headrace", "storage", str(path), "--json", "-q", "--seconds", "15"]
    try:
        with limited(path, **limits) as group:
            document: dict[str, Any] = json.loads(group.run(command))
            return document
    except NoLimitHere as why:
        pytest.skip(str(why))


@pytest.mark.parametrize("limit", [50 * MIB, 100 * MIB])
def test_a_limit_of_bytes_is_what_is_measured(large_file: Path, limit: int) -> None:
    document = _probe_apart(large_file, bytes_per_s=limit)
    for reading in (document["in_order"], *document["random"]):
        assert reading["coldness"] == "cold"
        assert reading["bytes_per_s"] == pytest.approx(limit, rel=0.2), reading
    assert document["random"][1]["bytes_per_s"] == pytest.approx(limit, rel=0.1)
    assert document["knee"]["state"] in ("found", "too_noisy")
    assert document["knee"]["depth"] in (1, None)  # one reader gets all that there is


def test_a_limit_of_reads_is_what_is_measured(large_file: Path) -> None:
    document = _probe_apart(large_file, reads_per_s=200)
    one = document["random"][0]
    assert one["bytes_per_s"] / one["read_bytes"] == pytest.approx(200, rel=0.2)


@pytest.mark.parametrize(("servers", "latency_s"), [(1, 0.01), (4, 0.02), (16, 0.02), (8, 0.1)])
def test_the_knee_is_where_it_was_put(servers: int, latency_s: float, tmp_path: Path) -> None:
    with slow_file(tmp_path, servers=servers, latency_s=latency_s, jitter=0.2) as path:
        kind = kind_of(path)
        assert (kind.medium, kind.name.split(" ")[0]) == (Medium.FUSE, "fuse.headrace_slow")
        result = probe(path, seconds=12.0)
    assert (result.knee.state, result.knee.depth) == (KneeState.FOUND, servers)
    (rate,) = (reading.bytes_per_s for reading in result.random if reading.depth == servers)
    assert rate == pytest.approx(servers * (128 << 10) / latency_s, rel=0.15)
    assert result.random[0].bytes_per_s == pytest.approx((128 << 10) / latency_s, rel=0.3)
    assert result.io_depth == servers
