"""A process for what the user named: when it is closed, nothing that it made stays."""

from pathlib import Path

import pytest

from headrace.loader import TargetProcess

HOLDS_A_SEMAPHORE = """
import multiprocessing
from headrace.loader import Orders

if __name__ == "__main__":
    orders = Orders()
    lock = multiprocessing.get_context("spawn").Lock()
    orders.say("started", name=lock._semlock.name)
    for _ in orders:
        pass
"""


def test_named_semaphores_are_gone_when_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "holds_a_semaphore.py").write_text(HOLDS_A_SEMAPHORE)
    monkeypatch.syspath_prepend(tmp_path)
    with TargetProcess("holds_a_semaphore", {}) as process:
        semaphore = Path(f"/dev/shm/sem.{process.told['name'].removeprefix('/')}")
        assert semaphore.exists()
        assert len(process.processes()) == 2  # it, and multiprocessing's tracker
    assert not semaphore.exists()
    assert process.processes() == []
