"""Random transforms of real packages do to a sample what its position says. Skipped where they are not installed.

PyPI's torchvision goes with PyPI's torch, the CUDA build, which needs no GPU for this; beside a CPU build its import
fails ("operator torchvision::nms does not exist"). So, in a new environment, without a CPU index:
`pip install torch==2.13.0 torchvision==0.28.0 monai albumentations kornia`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from headrace import DataLoader


class Pictures(Dataset[Any]):
    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.as_tensor(self.transform(np.random.RandomState(index).rand(16, 16, 3).astype(np.float32)))


def _monai() -> Any:
    transforms = pytest.importorskip("monai.transforms")
    kinds = [transforms.RandGaussianNoise(prob=1.0), transforms.RandFlip(prob=0.5), transforms.RandRotate90(prob=0.5)]
    compose = transforms.Compose(kinds)
    return lambda picture: compose(picture.transpose(2, 0, 1)).as_tensor()


def _albumentations() -> Any:
    package = pytest.importorskip("albumentations")
    compose = package.Compose([package.HorizontalFlip(p=0.5), package.RandomBrightnessContrast(p=1.0)], seed=None)
    return lambda picture: compose(image=picture)["image"]


def _torchvision() -> Any:
    transforms = pytest.importorskip("torchvision.transforms.v2")
    compose = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.RandomResizedCrop(16, antialias=True)])
    return lambda picture: compose(torch.from_numpy(picture).permute(2, 0, 1))


def _kornia() -> Any:
    augmentation = pytest.importorskip("kornia.augmentation")
    compose = augmentation.ImageSequential(
        augmentation.RandomHorizontalFlip(p=0.5), augmentation.RandomGaussianNoise(p=1.0)
    )
    return lambda picture: compose(torch.from_numpy(picture).permute(2, 0, 1)[None])[0]


@pytest.mark.parametrize("make", [_monai, _albumentations, _torchvision, _kornia], ids=lambda make: make.__name__[1:])
@pytest.mark.filterwarnings("ignore")
def test_three_runs_are_the_same_whatever_the_workers(make: Any) -> None:
    seen = []
    for num_workers, batch_size in ((1, 8), (2, 8), (2, 5)):
        torch.manual_seed(1)
        loader = DataLoader(Pictures(make()), batch_size=batch_size, num_workers=num_workers)
        seen.append(torch.cat(list(loader)))
    assert torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0], seen[2])
    torch.manual_seed(2)
    assert not torch.equal(seen[0], torch.cat(list(DataLoader(Pictures(make()), batch_size=8, num_workers=2))))
