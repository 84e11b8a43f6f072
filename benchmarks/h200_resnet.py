"""Does the loader keep an H200 as busy as data that is on the GPU already?

ResNet-50 in bf16, batch 256, fed from 500x375 JPEGs in memory (decode, resize to 224: the same data set on both sides).
Each contender first measures its own synthetic rate, with one batch that stays on the GPU, so that a share is taken
within one process; the contender "synthetic" feeds that batch twice over and shows the noise of the method. Needs
torch, torchvision and numpy alone. Two rounds take under four minutes.

    PYTHONPATH=src python benchmarks/h200_resnet.py
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch

from harness import Bar, Contender, Options, Question, Result, ask
from loaders import MODULES, loader_class
from loop import loader_account, rates, wait_figures
from probes import tree_usage
from workloads import ENDLESS, Photos

WARMUP_STEPS, SYNTHETIC_WARMUP_STEPS = 30, 15


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--torch-workers", type=int, default=16, help="torch's best setting there (%(default)s)")
    parser.add_argument("--headrace-workers", type=int, default=12)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--more", action="store_true", help="also headrace with pin_memory, copied by the loop")


def contenders(options: Options) -> list[Contender]:
    skip = None if torch.cuda.is_available() or options.device == "cpu" else "no CUDA device"
    asked = partial(Contender, skip=skip)
    batched = {"batch_size": options.batch_size}
    ours = batched | {"num_workers": options.headrace_workers}
    found = [
        asked("synthetic", partial(train, options, None, {}), needs=("torchvision",)),
        asked(
            torch_name(options),
            partial(
                train,
                options,
                "torch",
                batched | {"num_workers": options.torch_workers, "prefetch_factor": 2, "pin_memory": True},
            ),
            needs=("torchvision", *MODULES["torch"]),
        ),
        asked(
            ours_name(options),
            partial(train, options, "headrace", ours | {"device": options.device}),
            needs=("torchvision", *MODULES["headrace"]),
        ),
    ]
    if options.more:
        found.append(
            asked(
                f"{ours_name(options)}, copied by the loop",
                partial(train, options, "headrace", ours | {"pin_memory": True}),
                needs=("torchvision", *MODULES["headrace"]),
            )
        )
    return found


def torch_name(options: Options) -> str:
    return f"torch {options.torch_workers} workers"


def ours_name(options: Options) -> str:
    return f"headrace {options.headrace_workers} workers"


def make_step(options: Options) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """Return one training step of ResNet-50, which takes a uint8 batch and its labels on the device."""
    import torchvision

    torch.backends.cudnn.benchmark = True
    model = torchvision.models.resnet50().to(options.device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        inputs = images.contiguous(memory_format=torch.channels_last).float().div_(255)
        with torch.autocast(options.device.partition(":")[0], torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def train(options: Options, library: str | None, settings: dict[str, Any]) -> Result:
    """Train on data of the GPU's own, then on the loader's, and return how the two compare."""
    device = options.device
    synchronize: Callable[[], object] = torch.cuda.synchronize if device != "cpu" else lambda: None
    dataset = Photos(options.size, length=ENDLESS)
    kind = loader_class(library) if library else None
    step = make_step(options)
    images = torch.randint(0, 255, (options.batch_size, 3, 224, 224), dtype=torch.uint8, device=device)
    labels = torch.randint(0, 1000, (options.batch_size,), device=device)
    for _ in range(SYNTHETIC_WARMUP_STEPS):
        step(images, labels)
    synchronize()
    begin, num_steps = time.perf_counter(), 0
    while time.perf_counter() - begin < options.seconds / 2:
        step(images, labels)
        num_steps += 1
    synchronize()
    synthetic_per_s = num_steps * options.batch_size / (time.perf_counter() - begin)

    start = time.perf_counter()
    loader: Iterable[Any] = kind(dataset, **settings) if kind else itertools.repeat((images, labels))
    batches = iter(loader)
    batch = next(batches)
    first_batch_s = time.perf_counter() - start

    def ask_and_step() -> float:
        nonlocal batch
        step(*(tensor.to(device, non_blocking=True) for tensor in batch))
        asked = time.perf_counter()
        batch = next(batches)
        return time.perf_counter() - asked

    for _ in range(WARMUP_STEPS if not options.quick else 8):
        ask_and_step()
    synchronize()
    before, begin, waits_s = tree_usage(os.getpid()), time.perf_counter(), []
    while time.perf_counter() - begin < options.seconds:
        waits_s.append(ask_and_step())
    synchronize()
    elapsed_s = time.perf_counter() - begin
    used = tree_usage(os.getpid()) - before
    figures = rates(len(waits_s) * options.batch_size, len(waits_s), elapsed_s, used) | wait_figures(waits_s)
    return figures | {
        "first_batch_s": first_batch_s,
        "synthetic_per_s": synthetic_per_s,
        "share_of_synthetic": figures["samples_per_s"] / synthetic_per_s,
        "settled": loader_account(loader),
        "gpu": torch.cuda.get_device_name() if device != "cpu" else None,
        "torch": torch.__version__,
    }


def bars(options: Options) -> list[Bar]:
    ours, torchs = ours_name(options), torch_name(options)
    return [
        Bar(f"share of the synthetic rate, {ours}", ours, "share_of_synthetic", at_least=0.99),
        Bar(f"worst wait after warm-up in ms, {ours}", ours, "wait_worst_ms", at_most=3.0),
        Bar(f"share of the synthetic rate, {torchs}", torchs, "share_of_synthetic"),
        Bar(f"images/s, {ours} / {torchs}", ours, "samples_per_s", (torchs,)),
        Bar(f"images/s, {ours} / synthetic of its round", ours, "samples_per_s", ("synthetic",)),
        Bar(f"first batch, {ours} / {torchs}", ours, "first_batch_s", (torchs,)),
    ]


QUESTION = Question(
    doc=__doc__,
    contenders=contenders,
    bars=bars,
    arguments=arguments,
    files=lambda options: [("photos", options.size)] if torch.cuda.is_available() or options.device == "cpu" else [],
    columns=(
        "samples_per_s",
        "share_of_synthetic",
        "synthetic_per_s",
        "first_batch_s",
        "wait_median_ms",
        "wait_p99_ms",
        "wait_worst_ms",
        "cores_used",
    ),
    show_waits=True,
    rounds=2,
    seconds=8.0,
    quick_seconds=3.0,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
