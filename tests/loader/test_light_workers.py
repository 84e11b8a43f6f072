"""Workers load no torch where the data set needs none: a second and 200 MiB less for each."""

from __future__ import annotations

import pytest
import torch

import headrace

from ..engine.plain import Plain

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_a_spawned_worker_of_a_numpy_data_set_never_imports_torch(backend: str) -> None:
    loader = headrace.DataLoader(
        Plain(12),  # type: ignore[arg-type]  # a data set needs no base class
        batch_size=4,
        num_workers=1,
        multiprocessing_context="spawn",
        backend=backend,
    )
    batches = list(loader)
    assert [batch["i"].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert all(batch["x"].dtype == torch.float32 for batch in batches)
    assert not any(batch["has_torch"].any() for batch in batches)
