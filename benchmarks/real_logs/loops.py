"""Trainings written as people write them: print, logging, tqdm, accelerate, and the shape of the PyTorch examples."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator

import torch
from injected import BATCH_SIZE, NUM_WORKERS, SCENARIOS, Scenario, WorkerStart, pause, steps_of, training, validation
from torch.utils.data import DataLoader


def loader_of(scenario: Scenario) -> DataLoader[tuple[torch.Tensor, torch.Tensor]]:
    return DataLoader(
        training(scenario),
        batch_size=BATCH_SIZE,
        num_workers=NUM_WORKERS,
        worker_init_fn=WorkerStart(scenario.worker_start_s),
    )


def evaluate(scenario: Scenario) -> None:
    for _ in DataLoader(validation(scenario), batch_size=BATCH_SIZE, num_workers=2):
        pass


def steps(scenario: Scenario) -> Iterator[tuple[int, int, float, float]]:
    """Yield (epoch, step, wait, whole step) while a tiny model trains; what happens after the step is the caller's."""
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step, end = 0, time.perf_counter()
    for epoch in range(scenario.epochs):
        for x, y in loader_of(scenario):
            wait_s = time.perf_counter() - end
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(scenario.step_s)
            step += 1
            pause(scenario, step)
            now = time.perf_counter()
            yield epoch, step, wait_s, now - end
            end = now  # a checkpoint or an evaluation by the caller falls into the next step, as in most scripts


def after_step(scenario: Scenario, step: int, say: logging.Logger | None) -> None:
    if scenario.checkpoint_every and step % scenario.checkpoint_every == 0:
        if say:
            say.info("Saving checkpoint to out/step_%06d.pt", step)
        time.sleep(scenario.checkpoint_s)
    if scenario.evaluate_every and step % scenario.evaluate_every == 0:
        if say:
            say.info("Running evaluation at step %d", step)
        evaluate(scenario)
    if scenario.log_every and step % scenario.log_every == 0:
        if say:
            say.info("Uploading metrics and 16 images to the tracking server")
        time.sleep(scenario.log_s)


def plain(scenario: Scenario) -> None:
    """`logging` lines with step time and data time."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stdout)
    say = logging.getLogger("train")
    say.info("config: batch_size=%d num_workers=%d prefetch_factor=2", BATCH_SIZE, NUM_WORKERS)
    for epoch, step, wait_s, step_s in steps(scenario):
        say.info(
            "epoch %d step %d/%d loss 0.69 step_time %.3fs data_time %.3fs",
            epoch,
            step,
            steps_of(scenario),
            step_s,
            wait_s,
        )
        after_step(scenario, step, say)


def stamped(scenario: Scenario) -> None:
    """Nothing but a time stamp and a step number."""
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s] %(message)s", stream=sys.stdout)
    say = logging.getLogger("train")
    for _, step, _, _ in steps(scenario):
        say.info("iter %d loss=0.6931", step)
        after_step(scenario, step, say)


def imagenet(scenario: Scenario) -> None:
    """The progress lines of the PyTorch ImageNet example, printed every step: current value, mean in brackets."""
    sums = [0.0, 0.0]
    count = seen_epoch = 0
    per_epoch = steps_of(scenario) // scenario.epochs
    for epoch, step, wait_s, step_s in steps(scenario):
        if epoch != seen_epoch:
            sums, count, seen_epoch = [0.0, 0.0], 0, epoch
        count += 1
        sums = [sums[0] + step_s, sums[1] + wait_s]
        print(
            f"Epoch: [{epoch}][{count:3d}/{per_epoch}]\tTime {step_s:6.3f} ({sums[0] / count:6.3f})\t"
            f"Data {wait_s:6.3f} ({sums[1] / count:6.3f})\tLoss 6.9e-01 (6.9e-01)\tAcc@1  50.00 ( 50.00)",
            flush=True,
        )
        if scenario.checkpoint_every and step % scenario.checkpoint_every == 0:
            print("=> saving checkpoint 'checkpoint.pth.tar'", flush=True)
        if scenario.evaluate_every and step % scenario.evaluate_every == 0:
            print("Test: [0/8]\tTime  0.250 ( 0.250)\tLoss 6.9e-01 (6.9e-01)", flush=True)
        after_step(scenario, step, None)


def tqdm_bar(scenario: Scenario) -> None:
    """A tqdm bar over the loader, as it lands in a redirected stderr."""
    from tqdm import tqdm

    per_epoch = steps_of(scenario) // scenario.epochs
    walk, step = steps(scenario), 0
    for epoch in range(scenario.epochs):
        with tqdm(total=per_epoch, desc=f"Epoch {epoch}") as bar:
            for _ in range(per_epoch):
                next(walk)
                bar.update()
                step += 1
                if scenario.checkpoint_every and step % scenario.checkpoint_every == 0:
                    tqdm.write(f"saved checkpoint to out/{step}.pt", file=sys.stderr)
                if scenario.evaluate_every and step % scenario.evaluate_every == 0:
                    loader = DataLoader(validation(scenario), batch_size=BATCH_SIZE, num_workers=2)
                    for _ in tqdm(loader, desc="Validation", leave=False):
                        pass
                elif scenario.log_every or scenario.checkpoint_every:
                    after_step(scenario, step, None)


def tqdm_ms(scenario: Scenario) -> None:
    """A tqdm bar with the step and the wait of each step behind it, in milliseconds."""
    from tqdm import tqdm

    bar = tqdm(total=steps_of(scenario), desc="train", mininterval=0)
    for _, step, wait_s, step_s in steps(scenario):
        bar.update()
        bar.set_postfix_str(f"loss=0.693, step(ms)={1000 * step_s:.0f}, data(ms)={1000 * wait_s:.0f}")
        after_step(scenario, step, None)


def accelerate_loop(scenario: Scenario) -> None:
    """The loop of the accelerate examples: its logger, its tqdm, its prepared loader."""
    from accelerate import Accelerator
    from accelerate.logging import get_logger
    from tqdm.auto import tqdm

    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", datefmt="%m/%d/%Y %H:%M:%S"
    )
    accelerator = Accelerator(cpu=True)
    say = get_logger("train")
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    say.info("***** Running training *****")
    say.info("  Total optimization steps = %d", steps_of(scenario))
    bar, step = tqdm(range(steps_of(scenario))), 0
    for _ in range(scenario.epochs):
        for x, y in accelerator.prepare(loader_of(scenario)):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(scenario.step_s)
            step += 1
            pause(scenario, step)
            bar.update(1)
            if scenario.checkpoint_every and step % scenario.checkpoint_every == 0:
                accelerator.save_state(f"out/step_{step}")
                time.sleep(scenario.checkpoint_s)
                say.info("Saved state to out/step_%d", step)
            if scenario.evaluate_every and step % scenario.evaluate_every == 0:
                evaluate(scenario)
                say.info("step %d: eval_loss 0.69 perplexity 2.0", step)


LOOPS = {
    "plain": plain,
    "stamped": stamped,
    "imagenet": imagenet,
    "tqdm": tqdm_bar,
    "tqdm_ms": tqdm_ms,
    "accelerate": accelerate_loop,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loop", choices=LOOPS)
    parser.add_argument("scenario", choices=SCENARIOS)
    args = parser.parse_args()
    LOOPS[args.loop](SCENARIOS[args.scenario])
