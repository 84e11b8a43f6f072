"""The same trainings under the trainers of mmengine, Lightning, transformers and Ultralytics."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from typing import Any

import torch
from injected import BATCH_SIZE, NUM_WORKERS, SCENARIOS, Scenario, WorkerStart, pause, steps_of, training, validation
from torch.utils.data import DataLoader


class Net(torch.nn.Module):
    """A linear layer that takes as long as the scenario's step."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__()
        self.scenario, self.linear, self.calls = scenario, torch.nn.Linear(8, 2), 0

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.calls += 1
            time.sleep(self.scenario.step_s)
            pause(self.scenario, self.calls)
        return torch.nn.functional.cross_entropy(self.linear(x), y)


def run_mmengine(scenario: Scenario, *, interval: int = 1) -> None:
    from mmengine.evaluator import BaseMetric
    from mmengine.hooks import CheckpointHook
    from mmengine.model import BaseModel
    from mmengine.runner import Runner

    class Model(BaseModel):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net(scenario)

        def forward(self, x: torch.Tensor, y: torch.Tensor, mode: str = "tensor") -> Any:
            loss = self.net.loss(x, y)
            return {"loss": loss} if mode == "loss" else [loss]

    class Metric(BaseMetric):
        def process(self, data_batch: Any, data_samples: Any) -> None:
            self.results.append(0.5)

        def compute_metrics(self, results: list[float]) -> dict[str, float]:
            return {"acc": sum(results) / len(results)}

    class SlowDisk(CheckpointHook):
        def _save_checkpoint(self, runner: Any) -> None:
            super()._save_checkpoint(runner)
            time.sleep(scenario.checkpoint_s)

    loader: dict[str, Any] = {"batch_size": BATCH_SIZE, "num_workers": NUM_WORKERS, "persistent_workers": False}
    loader["sampler"] = {"type": "DefaultSampler", "shuffle": False}
    train = DataLoader(
        training(scenario),
        batch_size=BATCH_SIZE,
        num_workers=NUM_WORKERS,
        worker_init_fn=WorkerStart(scenario.worker_start_s),
    )
    steps = steps_of(scenario)
    by_epoch = scenario.epochs > 1
    extra: dict[str, Any] = {}
    if scenario.evaluate_every:
        extra = {
            "val_dataloader": DataLoader(validation(scenario), batch_size=BATCH_SIZE, num_workers=2),
            "val_cfg": {},
            "val_evaluator": [Metric()],
        }
    Runner(
        model=Model(),
        work_dir=tempfile.mkdtemp(),
        train_dataloader=train,
        train_cfg={"by_epoch": True, "max_epochs": scenario.epochs}
        if by_epoch
        else {"by_epoch": False, "max_iters": steps, "val_interval": scenario.evaluate_every or 10**9},
        optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.01}},
        log_processor={"by_epoch": by_epoch},
        default_hooks={
            "logger": {"type": "LoggerHook", "interval": interval},
            "checkpoint": SlowDisk(interval=scenario.checkpoint_every or 10**9, by_epoch=False, save_last=False),
        },
        **extra,
    ).train()


def run_lightning(scenario: Scenario) -> None:
    import lightning as pl
    from lightning.pytorch.callbacks import ModelCheckpoint, TQDMProgressBar

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net(scenario)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return self.net.loss(*batch)

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val_loss", self.net.loss(*batch))

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    class SlowDisk(ModelCheckpoint):
        def _save_checkpoint(self, trainer: Any, filepath: str) -> None:
            super()._save_checkpoint(trainer, filepath)
            time.sleep(scenario.checkpoint_s)

    callbacks: list[Any] = [TQDMProgressBar()]  # what Lightning takes where rich is not installed
    if scenario.checkpoint_every:
        callbacks.append(
            SlowDisk(dirpath=tempfile.mkdtemp(), every_n_train_steps=scenario.checkpoint_every, verbose=True)
        )
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=scenario.epochs,
        logger=False,
        enable_checkpointing=bool(scenario.checkpoint_every),
        callbacks=callbacks,
        val_check_interval=scenario.evaluate_every or None,
        limit_val_batches=None if scenario.evaluate_every else 0,
        num_sanity_val_steps=0,
        default_root_dir=tempfile.mkdtemp(),
        enable_model_summary=False,
    )
    train = DataLoader(
        training(scenario),
        batch_size=BATCH_SIZE,
        num_workers=NUM_WORKERS,
        worker_init_fn=WorkerStart(scenario.worker_start_s),
    )
    val = DataLoader(validation(scenario), batch_size=BATCH_SIZE, num_workers=2)
    trainer.fit(Module(), train, val if scenario.evaluate_every else None)


def run_transformers(scenario: Scenario) -> None:
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net(scenario)

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": self.net.loss(x, labels), "logits": labels[:, None].float()}

    class SlowDisk(Trainer):
        def _save(self, *args: Any, **kwargs: Any) -> None:
            super()._save(*args, **kwargs)
            time.sleep(scenario.checkpoint_s)

    def collate(rows: list[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, torch.Tensor]:
        return {"x": torch.stack([x for x, _ in rows]), "labels": torch.stack([y for _, y in rows])}

    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=BATCH_SIZE,
        per_device_eval_batch_size=BATCH_SIZE,
        num_train_epochs=scenario.epochs,
        dataloader_num_workers=NUM_WORKERS,
        logging_steps=5,
        save_strategy="steps" if scenario.checkpoint_every else "no",
        save_steps=scenario.checkpoint_every or 500,
        eval_strategy="steps" if scenario.evaluate_every else "no",
        eval_steps=scenario.evaluate_every or 500,
        report_to=[],
        use_cpu=True,
        log_level="info",
    )
    if scenario.worker_start_s:
        import transformers.trainer as module

        original = module.seed_worker

        def slow_start(worker: int, *rest: Any, **kwargs: Any) -> None:
            time.sleep(scenario.worker_start_s)
            original(worker, *rest, **kwargs)

        module.seed_worker = slow_start
    SlowDisk(
        model=Model(),
        args=args,
        train_dataset=training(scenario),
        eval_dataset=validation(scenario),
        data_collator=collate,
    ).train()


def _without_cuda() -> None:
    """Let torchvision's CUDA build load beside a CPU torch: its compiled operators are missing there; one is used."""
    if torch.version.cuda is not None:
        return

    def nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
        return scores.argsort(descending=True)[:1]

    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.impl("nms", nms, "CPU")
    _KEPT.append(library)
    import torchvision

    torchvision.ops.nms = nms


_KEPT: list[Any] = []  # an operator lives as long as its library


def run_ultralytics(scenario: Scenario) -> None:
    _without_cuda()
    from pathlib import Path

    import numpy as np
    from PIL import Image
    from ultralytics import YOLO
    from ultralytics.data.dataset import YOLODataset
    from ultralytics.engine.trainer import BaseTrainer

    root = Path(tempfile.mkdtemp())
    epochs = 5 if scenario.evaluate_every else scenario.epochs  # it evaluates behind each epoch
    steps = steps_of(scenario) // epochs
    for part, count in (("train", steps * BATCH_SIZE), ("val", 16)):
        (root / "images" / part).mkdir(parents=True)
        (root / "labels" / part).mkdir(parents=True)
        image = Image.fromarray(np.full((32, 32, 3), 128, np.uint8))
        for index in range(count):
            image.save(root / "images" / part / f"{index:05d}.jpg")
            (root / "labels" / part / f"{index:05d}.txt").write_text("0 0.5 0.5 0.4 0.4\n")
    data = root / "data.yaml"
    data.write_text(f"path: {root}\ntrain: images/train\nval: images/val\nnames: {{0: thing}}\n")
    injected = training(scenario)
    plain_item = YOLODataset.__getitem__

    def slow_item(self: Any, index: int) -> Any:
        if "train" in str(self.img_path):
            injected[index % len(injected)]
        elif scenario.evaluate_every:
            time.sleep(0.5)
        return plain_item(self, index)

    YOLODataset.__getitem__ = slow_item
    plain_save = BaseTrainer.save_model

    def slow_save(self: Any) -> Any:
        done = plain_save(self)
        time.sleep(scenario.checkpoint_s)
        return done

    BaseTrainer.save_model = slow_save
    num_done = [0]

    def after_batch(trainer: Any) -> None:
        num_done[0] += 1
        time.sleep(scenario.step_s / 2)
        pause(scenario, num_done[0])

    model = YOLO("yolov8n.yaml")
    model.add_callback("on_train_batch_end", after_batch)
    model.train(
        data=str(data),
        epochs=epochs,
        imgsz=32,
        batch=BATCH_SIZE,
        workers=NUM_WORKERS,
        device="cpu",
        project=str(root / "runs"),
        plots=False,
        val=bool(scenario.evaluate_every),
        save=bool(scenario.checkpoint_every),
        amp=False,
        close_mosaic=0,
        mosaic=0.0,
        optimizer="SGD",
    )


FRAMEWORKS = {
    "mmengine": run_mmengine,
    "mmengine_10": lambda scenario: run_mmengine(scenario, interval=10),
    "lightning": run_lightning,
    "transformers": run_transformers,
    "ultralytics": run_ultralytics,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=FRAMEWORKS)
    parser.add_argument("scenario", choices=SCENARIOS)
    args = parser.parse_args()
    os.chdir(tempfile.mkdtemp())
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # stdout and stderr in one file, in order
    FRAMEWORKS[args.framework](SCENARIOS[args.scenario])
