"""A module that needs a package which is not installed."""

from __future__ import annotations

import a_package_that_nobody_has  # type: ignore[import-not-found]  # that is the case
from torch.utils.data import DataLoader

CASES = {"package_is_missing": {"target": "loader", "finds": "import_fails", "quick": "import_fails"}}


def loader() -> DataLoader[object]:
    return DataLoader(a_package_that_nobody_has.Pictures(), num_workers=2)
