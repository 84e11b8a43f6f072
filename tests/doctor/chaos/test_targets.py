"""What names no data set that can be tested is refused, and the refusal says why."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.doctor.chaos import ChaosSettings
from headrace.doctor.chaos.subject import UnderTest
from headrace.errors import HeadraceError

DATA = """
from torch.utils.data import ChainDataset
good = list(range(80))
numbers = iter(range(8))
stream = ChainDataset([])
few = [1, 2, 3]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_targets.py").write_text(DATA)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    yield tmp_path
    sys.modules.pop("own_targets", None)


@pytest.mark.parametrize("target", ["own_targets:good", "own_targets.py:good"])
def test_a_module_and_a_file_are_found(folder: Path, target: str) -> None:
    assert UnderTest(ChaosSettings(target=target)).subject.num_samples == 80


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("absent.py:x", "there is no file 'absent.py'"),
        ("no_such_module:x", "importing 'no_such_module' failed"),
        ("no_such_module:x", "try: make `python -c 'import no_such_module'` work here, or name a file: path"),
        ("own_targets:numbers", "own_targets:numbers is a range_iterator, no data set"),
        ("own_targets:stream", "map-style data set"),
        ("own_targets:few", "fewer than two batches of 8"),
    ],
)
def test_what_is_no_target_is_explained(folder: Path, target: str, said: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        UnderTest(ChaosSettings(target=target))
    assert said in str(caught.value)
