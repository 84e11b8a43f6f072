"""What a user names is found, whatever form it has; what cannot be used is explained."""

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from headrace import ShardWriter
from headrace.errors import HeadraceError
from headrace.loader import load_target

CODE = """
import argparse, sys
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
asked = argparse.ArgumentParser().parse_args()  # of this script: our own command line must not reach it
data = TensorDataset(torch.arange(20))
class Made(TensorDataset):
    def __init__(self): super().__init__(torch.arange(9))
class Stream(IterableDataset):
    def __iter__(self): return iter(range(3))
class Counted(Stream):
    def __len__(self): return 3
class Callable(TensorDataset):
    def __call__(self): raise RuntimeError("a data set, not a function")
odd = Callable(torch.arange(7))
def make(): return data
def loader(): return DataLoader(data, batch_size=5, collate_fn=list)
def both(): return DataLoader(data), DataLoader(data)
def exits(): sys.exit("no GPU here")
def raises(): raise ValueError("my config is missing")
def needs(path): return data
class space:
    inner = data
number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "named_things.py").write_text(CODE)
    (tmp_path / "exiting_script.py").write_text("raise SystemExit('usage: train.py CONFIG')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setattr(sys, "argv", ["headrace", "plan", "--batch-size", "8"])
    yield tmp_path
    for name in ("named_things", "exiting_script"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("name", "length"), [("data", 20), ("make", 20), ("Made", 9), ("space.inner", 20), ("loader", 20), ("odd", 7)]
)
def test_data_sets_functions_classes_and_loaders_are_found(folder: Path, name: str, length: int) -> None:
    for place in ("named_things", "named_things.py", str(folder / "named_things.py")):
        target = load_target(f"{place}:{name}")
        assert len(target.dataset) == length
        assert target.is_indexed
        assert (target.loader is not None) == (name == "loader")
        assert target.collate_fn is (list if name == "loader" else torch.utils.data.default_collate)
    assert sys.argv[1] == "plan"


def test_a_stream_has_no_index(folder: Path) -> None:
    assert not load_target("named_things:Stream").is_indexed
    assert not load_target("named_things:Counted").is_indexed


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("named_things:both", "is 2 loaders or data sets\n  try: a function that returns one of them"),
        ("named_things:raises", "my config is missing\n  try: what is raised in line 20 of"),
        ("named_things:number", "is a int, no data set"),
        ("named_things:needs", "missing 1 required positional argument: 'path'\n  try: a function without arguments"),
        ("named_things:exits", "calling named_things:exits failed: SystemExit: no GPU here"),
        ("named_things:absent", "named_things has no 'absent'\n  it has: argparse, sys, torch"),
        ("exiting_script.py:loader", "importing 'exiting_script' failed: SystemExit: usage: train.py CONFIG"),
        ("exiting_script.py:loader", "try: parse arguments and train below `if __name__ == '__main__':`"),
        ("named_things.py", "write path/to/file.py:name"),
        ("data/none-{000..003}.tar", "4 of 4 shards are not there"),
        ("s3://bucket/train-{000..127}.tar", "is not a local file"),
        (".", "no shard fits"),
    ],
)
def test_what_cannot_be_used_is_explained(folder: Path, target: str, said: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        load_target(target)
    assert said in str(caught.value)


def _write_shard(path: Path, shapes: list[tuple[int, ...]]) -> None:
    with ShardWriter(path) as shard:
        for number, shape in enumerate(shapes):
            array = io.BytesIO()
            np.save(array, np.full(shape, number, np.float32))
            shard.write({"__key__": f"s{number}", "npy": array.getvalue(), "odd": b"?"})


def test_shards_are_decoded_and_collated_where_that_works(tmp_path: Path) -> None:
    _write_shard(tmp_path / "even-%03d.tar", [(4, 4)] * 3)
    _write_shard(tmp_path / "odd-%03d.tar", [(4, 4), (5, 5)])
    even, odd = (load_target(f"{tmp_path}/{name}-{{000..000}}.tar") for name in ("even", "odd"))
    assert len(even.dataset) == 3
    assert even.dataset[1]["npy"].shape == (4, 4)
    assert "odd" not in even.dataset[1]
    assert even.collate_fn is torch.utils.data.default_collate
    assert odd.collate_fn is list
    assert len(load_target(str(tmp_path)).dataset) == 5


def test_what_a_script_starts_while_it_is_imported_is_told_from_what_its_function_does(tmp_path: Path) -> None:
    starts = "import multiprocessing\nworker = multiprocessing.Process(target=print)\n"
    (tmp_path / "no_guard.py").write_text(f"{starts}data = [1, 2]\n")
    (tmp_path / "guarded.py").write_text("def data():\n    " + starts.replace("\n", "\n    ") + "return [1, 2]\n")
    for name, expected in (("no_guard", "True"), ("guarded", "False")):
        code = f"from headrace.loader import load_target; print(load_target('{name}.py:data').starts_processes)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
        assert done.stdout.split() == [expected]
