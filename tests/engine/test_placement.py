"""On which processors workers run: within what was asked for and what the process is allowed."""

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from headrace import DataLoader, NotSupported
from headrace.engine import check_cpus, place_workers


@pytest.fixture
def two_nodes(tmp_path: Path) -> Path:
    for node, cpus in (("node0", "0-3"), ("node1", "4-7"), ("node2", "")):  # the last has memory only
        folder = tmp_path / "sys/devices/system/node" / node
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus + "\n")
    for address, node in (("0000:3b:00.0", "1"), ("0000:af:00.0", "-1")):
        folder = tmp_path / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(node + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("gpu", "allowed", "cpus", "said"),
    [
        ("0000:3B:00.0", range(8), {4, 5, 6, 7}, "4-7, NUMA node 1, of the GPU at 0000:3B:00.0"),
        ("0000:3b:00.0", [0, 1, 2, 6], {6}, "6, NUMA node 1, of the GPU"),  # a cpuset bounds it
        ("0000:3b:00.0", [0, 1], None, "has no effect: this process has processors of one node"),
        ("0000:af:00.0", [0, 1, 2, 6], {0, 1, 2}, "0-2, NUMA node 0, that has most"),  # the machine does not say
        (None, [3, 5, 6], {5, 6}, "5-6, NUMA node 1, that has most"),
    ],
)
def test_numa_is_near_the_gpu_and_within_the_cpuset(
    two_nodes: Path, gpu: str | None, allowed: list[int], cpus: set[int] | None, said: str
) -> None:
    placement = place_workers("numa", gpu=gpu, allowed=allowed, root=two_nodes)
    assert placement.cpus == cpus
    assert said in placement.reason


def test_a_machine_without_nodes_has_none(tmp_path: Path) -> None:
    assert place_workers("numa", allowed=range(4), root=tmp_path).cpus is None


def test_a_list_is_never_against_a_cpuset() -> None:
    placement = place_workers("2-5,9", allowed=range(4))
    assert placement.cpus == {2, 3}
    assert placement.reason == "as asked for: 2-3; 4-5,9 are not allowed to this process"
    with pytest.raises(NotSupported, match="none of the processors") as caught:
        place_workers([8], allowed=range(4))
    assert 'try: cpus="0-3"' in str(caught.value)
    assert place_workers(None).cpus is None


@pytest.mark.parametrize("asked", ["near", "", [], [1.5], [-1], ["0"], "0-", 3, [True]])
def test_what_names_no_processors_is_refused(asked: Any) -> None:
    with pytest.raises(ValueError, match=r"give a list of processors, a text such as .0-7,16., or .numa."):
        check_cpus(asked)


class Where:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> list[int]:
        return sorted(os.sched_getaffinity(0))


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_workers_run_there_and_the_training_process_does_not_move(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = os.sched_getaffinity(0)
    one = min(before)
    loader: Any = DataLoader(
        Where(),  # type: ignore[arg-type]
        batch_size=None,
        num_workers=1,
        backend=backend,
        cpus=[one],
    )
    with caplog.at_level(logging.INFO):
        assert [list(map(int, batch)) for batch in loader] == [[one]] * 4
    assert f"processors as asked for: {one}" in caplog.text
    assert os.sched_getaffinity(0) == before
