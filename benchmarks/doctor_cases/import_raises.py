"""A module that reads an environment variable which is not set, and a target that is not there."""

from __future__ import annotations

import os

from torch.utils.data import DataLoader

CASES = {
    "variable_is_not_set": {"target": "loader", "finds": "import_fails", "quick": "import_fails"},
}
ROOT = os.environ["THE_ROOT_OF_MY_DATA"]


def loader() -> DataLoader[str]:
    return DataLoader([ROOT], num_workers=2)  # type: ignore[arg-type]  # a list is a data set
