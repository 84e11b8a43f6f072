"""Ultralytics: a small YOLO from its definition alone on pictures that are made here; nothing is downloaded."""

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("YOLO_CONFIG_DIR", str(Path.cwd()))  # its settings stay here
os.environ.setdefault("YOLO_OFFLINE", "true")

import cv2
import numpy as np
import torch
from ultralytics import YOLO
from ultralytics.models.yolo.detect import DetectionTrainer


class Trainer(DetectionTrainer):  # type: ignore[misc]
    """With workers: without a GPU it would use none."""

    def get_dataloader(self, *args: Any, **kwargs: Any) -> Any:
        self.args.workers = 2
        return super().get_dataloader(*args, **kwargs)


def make_pictures(folder: Path, count: int) -> None:
    """White rectangles on noise, each with its label."""
    rng = np.random.default_rng(0)
    (folder / "images").mkdir(parents=True)
    (folder / "labels").mkdir()
    for number in range(count):
        picture = rng.integers(0, 128, (64, 64, 3), np.uint8)
        x, y = rng.integers(4, 36, 2)
        picture[y : y + 24, x : x + 24] = 255
        cv2.imwrite(str(folder / "images" / f"{number}.png"), picture)
        label = f"0 {(x + 12) / 64} {(y + 12) / 64} {24 / 64} {24 / 64}\n"
        (folder / "labels" / f"{number}.txt").write_text(label)


def main() -> None:
    torch.set_num_threads(1)
    make_pictures(Path("data/train"), 32)
    make_pictures(Path("data/valid"), 8)
    Path("data.yaml").write_text(
        f"path: {Path('data').resolve()}\ntrain: train/images\nval: valid/images\nnames:\n  0: box\n"
    )
    YOLO("yolov8n.yaml").train(
        trainer=Trainer,
        data="data.yaml",
        epochs=2,
        batch=4,
        imgsz=64,
        nbs=4,  # an optimizer step for every batch
        warmup_epochs=0,
        device="cpu",
        pretrained=False,
        plots=False,
        amp=False,
        project=str(Path("runs").resolve()),
    )


if __name__ == "__main__":
    main()
