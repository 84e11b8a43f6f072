"""What a worker notes before it fetches: the keys it was asked for, one by one or a batch at a time."""

from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset

from headrace.doctor.target.patient import WorkerStart


class Squares(Dataset[int]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index * index


class OfBatches(Squares):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [index * index for index in indices]


class OfBatchesByProperty(Squares):
    """As a data set has it that decides for itself whether batches are fetched at once."""

    @property
    def __getitems__(self) -> Any:
        return lambda indices: [index * index for index in indices]


@pytest.mark.parametrize(("kind", "note"), [(Squares, "7"), (OfBatches, "[6, 7]"), (OfBatchesByProperty, "")])
def test_a_worker_notes_what_it_is_asked_for(kind: Any, note: str, tmp_path: Path) -> None:
    start = WorkerStart(str(tmp_path), None)
    loader = DataLoader(kind(), batch_size=2, num_workers=1, worker_init_fn=start, multiprocessing_context="fork")
    assert [batch.tolist() for batch in loader] == [[0, 1], [4, 9], [16, 25], [36, 49]]
    assert (tmp_path / "worker-0").read_text().strip() == note
