"""The processors that this process may really use: affinity, quotas of control groups, ranks beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.limits import usable_processors, workers_for

from .test_budget import write


@pytest.fixture(autouse=True)
def _sixteen_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))  # a fake for what a test machine lacks
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)


def machine(root: Path, cgroup: str, groups: dict[str, dict[str, object]]) -> Path:
    write(root, {"proc/self/cgroup": cgroup})
    for folder, files in groups.items():
        write(root / "sys/fs/cgroup" / folder, files)
    return root


def test_affinity_alone(tmp_path: Path) -> None:
    assert usable_processors(tmp_path) == 16
    assert usable_processors(machine(tmp_path, "0::/", {".": {"cpu.max": "max 100000"}})) == 16


@pytest.mark.parametrize(
    ("cgroup", "groups", "expected"),
    [
        ("0::/job", {"job": {"cpu.max": "400000 100000"}}, 4),
        ("0::/job", {"job": {"cpu.max": "250000 100000"}}, 2),
        ("0::/job", {"job": {"cpu.max": "50000 100000"}}, 1),
        ("0::/a/b", {"a/b": {"cpu.max": "max 100000"}, "a": {"cpu.max": "300000 100000"}}, 3),
        ("0::/docker/host-path", {".": {"cpu.max": "200000 100000"}}, 2),
        ("4:cpu,cpuacct:/box", {"cpu/box": {"cpu.cfs_quota_us": 600000, "cpu.cfs_period_us": 100000}}, 6),
        ("4:cpuacct,cpu:/box", {"cpu/box": {"cpu.cfs_quota_us": -1, "cpu.cfs_period_us": 100000}}, 16),
        ("4:cpu:/host", {"cpu": {"cpu.cfs_quota_us": 150000, "cpu.cfs_period_us": 100000}}, 1),
        ("0::/job", {"job": {"cpu.max": "6400000 100000"}}, 16),
        ("0::/job", {"job": {"cpu.max": "broken"}}, 16),
        ("garbage", {}, 16),
    ],
)
def test_quotas(tmp_path: Path, cgroup: str, groups: dict[str, dict[str, object]], expected: int) -> None:
    assert usable_processors(machine(tmp_path, cgroup, groups)) == expected


@pytest.mark.parametrize(("ranks", "expected"), [("1", 16), ("4", 4), ("3", 5), ("64", 1), ("", 16)])
def test_ranks_share_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: str, expected: int) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    assert usable_processors(tmp_path) == expected


@given(
    sample_s=st.floats(0, 100), cpu_share=st.floats(0, 1), processors=st.integers(1, 256)
)  # fmt: skip
def test_the_number_of_workers_is_sane(sample_s: float, cpu_share: float, processors: int) -> None:
    count, reason = workers_for(sample_s, cpu_share, processors)
    assert 0 <= count <= max(32, processors)
    assert (count == 0) == (sample_s < 20e-6)
    assert reason
    if cpu_share >= 0.5 and count:
        assert count <= processors
    elif count:
        assert count >= workers_for(sample_s, 1.0, processors)[0]
