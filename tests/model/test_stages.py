"""Named stages: counted in every kind of worker, closed by exceptions, printed by sample when asked for."""

import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import IterableDataset

import headrace
from headrace.model import Stages, StageTable, merge_stages, read_stages, record_stages, stages_of


class Volumes:
    """Each sample has an outer stage with a codec's inside, one that may raise, and one in a thread of its own."""

    def __init__(self, num: int = 24, *, fails_at: int = -1) -> None:
        self.num, self.fails_at = num, fails_at
        buffer = io.BytesIO()
        np.savez_compressed(buffer, v=np.arange(1000.0))
        self.data = buffer.getvalue()

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, index: int) -> np.ndarray:
        with headrace.stage("volume process"):
            array = headrace.codecs.npz(self.data, "v")
            with headrace.stage("sleep", nbytes=1000):
                time.sleep(0.001)
        try:
            with headrace.stage("fails"):
                raise KeyError(index)
        except KeyError:
            pass
        thread = threading.Thread(target=self._aside)
        thread.start()
        thread.join()
        if index == self.fails_at:
            raise ValueError("damaged")
        return np.array([index, array[3]])

    def _aside(self) -> None:
        with headrace.stage("aside"):
            pass


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[np.ndarray]:
        for k in range(12):
            with headrace.stage("step"):
                item = np.array([k])
            yield item


WAYS = {
    "in-process": {"num_workers": 0},
    "fork": {"num_workers": 2, "multiprocessing_context": "fork"},
    "spawn": {"num_workers": 2, "multiprocessing_context": "spawn"},
    "forkserver": {"num_workers": 1, "multiprocessing_context": "forkserver"},
    "threads": {"num_workers": 2, "backend": "thread", "multiprocessing_context": "fork"},
}


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.slow] if way == "forkserver" else []) for way in WAYS]
)
def test_every_kind_of_worker_counts(way: str) -> None:
    loader = headrace.DataLoader(Volumes(), batch_size=4, **WAYS[way])  # type: ignore[arg-type]
    assert len([batch for batch in loader]) == 6  # noqa: C416
    stages = loader.stats().stages
    num = stages["volume process"].count
    # samples may be fetched again while it is found out whether they draw random numbers; none is missing
    assert 24 <= num <= 32
    names = {"volume process", "npz decode", "sleep", "fails"} | (set() if way == "in-process" else {"aside"})
    assert {stage.name for stage in stages} == names
    assert {stage.count for stage in stages} == {num}
    outer, inner = stages["volume process"], stages["sleep"]
    assert outer.total_s >= inner.total_s >= num * 0.001
    assert outer.own_s == pytest.approx(outer.total_s - inner.total_s - stages["npz decode"].total_s, abs=1e-6)
    assert 0.0009 <= inner.median_s <= inner.p95_s <= inner.worst_s
    assert 0 < inner.share < outer.share <= 1
    assert inner.mb_per_s == pytest.approx(num * 1000 / 1e6 / inner.total_s)
    assert stages["fails"].mb_per_s is None
    assert stages["npz decode"].mb_per_s is not None


def test_an_iterable_data_set_counts_too() -> None:
    for num_workers in (0, 1):
        loader = headrace.DataLoader(Stream(), batch_size=4, num_workers=num_workers)
        assert len(list(loader)) == 3
        assert loader.stats().stages["step"].count == 12


def test_two_loaders_do_not_mix() -> None:
    one, two = (headrace.DataLoader(Volumes(n), batch_size=4, num_workers=0) for n in (8, 12))
    batches, others = iter(one), iter(two)
    for _ in range(2):
        next(batches)
        next(others)
    next(others)
    assert one.stats().stages["sleep"].count == 8
    assert two.stats().stages["sleep"].count == 12


def test_nothing_is_recorded_where_that_is_switched_off() -> None:
    for num_workers in (0, 1):
        loader = headrace.DataLoader(Volumes(), batch_size=4, num_workers=num_workers, keep_stats=False)
        list(loader)
        assert len(loader.stats().stages) == 0


def test_a_sample_that_raises_leaves_its_stages_closed() -> None:
    loader = headrace.DataLoader(Volumes(8, fails_at=3), batch_size=2, num_workers=1)
    with pytest.raises(ValueError, match="damaged"):
        list(loader)
    stages = loader.stats().stages
    assert stages["volume process"].count == stages["fails"].count >= 4


# ------------------------------------------------------------------ the clock itself


def test_stages_nest_and_survive_exceptions() -> None:
    table = StageTable()
    with record_stages(table):
        for _ in range(3):
            with suppress(RuntimeError), headrace.stage("outer"), headrace.stage("inner") as inner:
                inner.nbytes = 7
                raise RuntimeError
        with headrace.stage("after"):
            pass
    rows = {row.name: row for row in read_stages(table.words)}
    assert {name: row.count for name, row in rows.items()} == {"inner": 3, "outer": 3, "after": 1}
    assert rows["outer"].own_ns == rows["outer"].total_ns - rows["inner"].total_ns
    assert rows["after"].own_ns == rows["after"].total_ns
    assert rows["inner"].nbytes == 21


def test_outside_of_a_loader_nothing_is_kept() -> None:
    with headrace.stage("anything") as one, headrace.stage("other") as two:
        one.nbytes, one.note = 5, "x"
    assert one is two  # the same empty stage: it costs next to nothing


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdé名" * 8).map(lambda c: c * 30) | st.text(max_size=80), st.integers(0, 2**42)),
        max_size=120,
    )
)
def test_the_table_adds_up(entries: list[tuple[str, int]]) -> None:
    table = StageTable()
    for name, ns in entries:
        table.add(name, ns, ns // 2, 3)
    rows = read_stages(table.words)
    assert sum(row.count for row in rows) == len(entries)
    assert sum(row.total_ns for row in rows) == sum(ns for _, ns in entries)
    assert sum(row.nbytes for row in rows) == 3 * len(entries)
    assert len(rows) <= 32
    for row in rows:
        assert sum(row.histogram) == row.count
    twice = merge_stages([rows, rows])
    assert sum(row.count for row in twice) == 2 * len(entries)


@given(st.lists(st.integers(1, 2**38), min_size=1, max_size=200))
def test_quantiles_are_within_a_tenth(times: list[int]) -> None:
    table = StageTable()
    for ns in times:
        table.add("x", ns, ns, 0)
    (row,) = read_stages(table.words)
    for q in (0.5, 0.95):
        exact = float(np.quantile(times, q, method="inverted_cdf"))
        assert exact / 1.1 <= row.quantile_ns(q) <= max(exact * 1.1, exact + 1)


def test_threads_of_one_table_lose_nothing() -> None:
    table = StageTable()

    def work() -> None:
        with record_stages(table):
            for k in range(3000):
                with headrace.stage(f"s{k % 5}"):
                    pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [row.count for row in read_stages(table.words)] == [2400] * 5


def test_the_table_is_readable_in_two_languages() -> None:
    table = StageTable()
    for k in range(20):
        table.add("volume process", 2_000_000_000 + k, 2_000_000_000, 10**9)
        table.add("体积解码", 1_500_000, 1_500_000, 0)
    stages = stages_of(read_stages(table.words), worker_s=80.0)
    lines = stages.table("en").splitlines()
    assert lines[0].split() == [
        "stage",
        "count",
        "total",
        "own",
        "median",
        "p95",
        "worst",
        "of",
        "worker",
        "time",
        "MB/s",
    ]
    assert lines[1].split()[:4] == ["volume", "process", "20", "40.0"]
    assert "50.0%" in lines[1]
    assert lines[1].endswith(" 500")
    assert "占工作时间" in stages.table("zh")
    assert "no stage was timed" in Stages().table()
    with pytest.raises(KeyError, match="no stage 'x'; there are: volume process"):
        stages["x"]


# ------------------------------------------------------------------ the lines of HEADRACE_TIMING

SCRIPT = """
import sys
import numpy as np
import headrace

class Studies:
    def __len__(self):
        return 2
    def __getitem__(self, index):
        with headrace.sample(f"study_{index:03}"):
            with headrace.stage("metadata decode"):
                pass
            with headrace.stage("volume decode") as done:
                volume = np.zeros((8, 8, 4))
                done.note = f"shape={volume.shape}"
            with headrace.stage("volume process"):
                with headrace.stage("resize"):
                    pass
        return volume

class Plain:
    def __len__(self):
        return 2
    def __getitem__(self, index):
        with headrace.stage("read"):
            return np.zeros(3)

if __name__ == "__main__":
    dataset = {"studies": Studies, "plain": Plain}[sys.argv[1]]()
    method = {"multiprocessing_context": sys.argv[3]} if sys.argv[2] != "0" else {}
    for batch in headrace.DataLoader(dataset, batch_size=2, num_workers=int(sys.argv[2]), **method):
        pass
"""


def timing_lines(tmp_path: Path, environment: dict[str, str], *arguments: str) -> list[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    clean = {name: value for name, value in os.environ.items() if name not in ("HEADRACE_TIMING", "DEBUG_TIMING")}
    done = subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, env={**clean, **environment}
    )
    assert done.returncode == 0, done.stderr
    import re

    return [re.sub(r"\d\.\d{4}s", "0s", line) for line in done.stderr.splitlines()]


@pytest.mark.parametrize(("workers", "method"), [("0", ""), ("1", "fork"), ("1", "spawn")])
def test_lines_as_users_know_them(tmp_path: Path, workers: str, method: str) -> None:
    variable = {"DEBUG_TIMING": "true"} if method == "fork" else {"HEADRACE_TIMING": "1"}
    lines = timing_lines(tmp_path, variable, "studies", workers, method)
    for key in ("study_000", "study_001"):
        mine = [line.removeprefix(f"[{key}] ") for line in lines if line.startswith(f"[{key}]")][:5]
        assert mine == [
            "Metadata decode: 0s",
            "Volume decode: 0s (shape=(8, 8, 4))",
            "  Resize: 0s",
            "Volume process: 0s",
            "TOTAL decode time: 0s",
        ]
    assert not [line for line in lines if not line.startswith("[study_00")]


def test_samples_without_a_name_go_by_their_index(tmp_path: Path) -> None:
    lines = timing_lines(tmp_path, {"HEADRACE_TIMING": "true"}, "plain", "0")
    assert lines == ["[0] Read: 0s", "[0] TOTAL decode time: 0s", "[1] Read: 0s", "[1] TOTAL decode time: 0s"]
    assert timing_lines(tmp_path, {"HEADRACE_TIMING": "0", "DEBUG_TIMING": "true"}, "plain", "0") == []


_WITHOUT_A_LOADER = """
from contextlib import suppress
import headrace

with headrace.stage("on its own"):
    pass
with suppress(ValueError), headrace.sample("s1"), headrace.stage("decode"):
    raise ValueError
"""


def test_lines_without_a_loader() -> None:
    command, environment = [sys.executable, "-c", _WITHOUT_A_LOADER], {**os.environ, "HEADRACE_TIMING": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    lines = done.stderr.splitlines()
    assert [line.split("0.")[0] for line in lines] == ["On its own: ", "[s1] Decode: ", "[s1] TOTAL decode time: "]
    assert [line.partition("s (")[2] for line in lines] == ["", "raised ValueError)", "raised ValueError)"]


def test_stages_are_json_ready() -> None:
    from dataclasses import asdict

    loader = headrace.DataLoader(Volumes(4), batch_size=2, num_workers=0)
    list(loader)
    assert json.loads(json.dumps(asdict(loader.stats())["stages"]["rows"]))[0]["count"] == 4
