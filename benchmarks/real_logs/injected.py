"""What is injected into the short real trainings whose logs are stored beside this folder.

Each scenario has one cause and one only. A training step is simulated by a sleep (the stand-in of a GPU), a slow sample
by a sleep in `__getitem__`; the loaders, the frameworks and the words they print are the real ones.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch
from torch.utils.data import Dataset

STEP_S = 0.1
BATCH_SIZE = 4
NUM_WORKERS = 4
NUM_STEPS = 150


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One injected cause; `0` means that it is not injected."""

    name: str
    truth: str  # the cause, as `headrace explain` names it; empty: healthy
    step_s: float = STEP_S
    batch_s: float = 0.008  # service time of one batch in one worker
    batch_spread: float = 0.1
    straggler_s: float = 0.0  # one sample in `straggler_every` takes this long
    straggler_every: int = 0
    checkpoint_every: int = 0
    checkpoint_s: float = 0.0
    evaluate_every: int = 0
    worker_start_s: float = 0.0
    epochs: int = 1
    log_every: int = 0
    log_s: float = 0.0
    hidden_every: int = 0  # a pause that nothing in the log speaks of
    hidden_s: float = 0.0


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(name="healthy", truth="", step_s=0.06),
        Scenario(name="compute", truth="", step_s=0.15),
        # Four workers need 2.4 s for a batch each: 1.67 batches/s supplied against 10 demanded.
        Scenario(name="slow_pool", truth="batch_lockstep", batch_s=2.4, batch_spread=0.05),
        Scenario(name="straggler", truth="straggler_sample", straggler_s=4.0, straggler_every=170),
        Scenario(name="checkpoint", truth="checkpoint", checkpoint_every=30, checkpoint_s=2.0),
        Scenario(name="evaluation", truth="evaluation", evaluate_every=30),
        Scenario(name="epoch_start", truth="epoch_start", worker_start_s=2.5, epochs=5),
        Scenario(name="slow_logging", truth="logging", log_every=25, log_s=1.5),
        Scenario(name="hidden", truth="unknown", hidden_every=37, hidden_s=2.0),
    )
}


def steps_of(scenario: Scenario) -> int:
    """How many steps a run takes: enough rounds of the slow pool, and under half a minute each."""
    return 72 if scenario.name == "slow_pool" else NUM_STEPS


class InjectedDataset(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Samples that take as long as the scenario says."""

    def __init__(self, scenario: Scenario, *, num_samples: int) -> None:
        self.scenario, self.num_samples = scenario, num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        scenario = self.scenario
        spread = 1 + scenario.batch_spread * (((index * 2654435761) % 1000) / 500 - 1)
        seconds = scenario.batch_s / BATCH_SIZE * spread
        # Irregular, but the same in every run: the middle of each stretch, moved by a hash.
        if scenario.straggler_every:
            stretch = index // scenario.straggler_every
            if index % scenario.straggler_every == (stretch * 40503 + 90) % scenario.straggler_every:
                seconds += scenario.straggler_s
        time.sleep(seconds)
        return torch.full((8,), float(index % 7)), torch.tensor(index % 2)


@dataclass
class WorkerStart:
    """What a worker does before its first sample: imports, opening of archives."""

    seconds: float

    def __call__(self, worker: int) -> None:
        time.sleep(self.seconds)


def validation(scenario: Scenario) -> InjectedDataset:
    """A validation set that takes about two seconds with two workers."""
    return InjectedDataset(replace(scenario, batch_s=0.5, straggler_every=0), num_samples=8 * BATCH_SIZE)


def training(scenario: Scenario) -> InjectedDataset:
    """The training set: all steps of the run, over all epochs."""
    return InjectedDataset(scenario, num_samples=steps_of(scenario) // scenario.epochs * BATCH_SIZE)


def pause(scenario: Scenario, step: int) -> None:
    """The pauses of the loop itself that no framework knows of; `step` counts from 1."""
    if scenario.hidden_every and step % scenario.hidden_every == 0:
        time.sleep(scenario.hidden_s)
