"""Which loader faults strike, drawn: a function of a number, so that a failure is repeated by its number."""

import random

from headrace.doctor.chaos import ChaosSettings
from headrace.model import FaultKind

_TARGETS = ("slots", "tiny", "large", "lists", "drawing", "general", "kept", "whole", "changed", "changed_large")


def draw_settings(number: int, *, num_faults: int) -> ChaosSettings:
    """Return what the draw of this number runs."""
    draw = random.Random(f"chaos/{number}")
    backend = draw.choice(("process", "process", "thread"))
    start_method = draw.choices(("fork", "forkserver", "spawn"), (10, 1, 1))[0]
    return ChaosSettings(
        target=f"tests.doctor.chaos.datasets:{draw.choice(_TARGETS)}",
        # a hang costs its timeout, several times: not in every draw, or the others would hardly get a turn
        kinds=tuple(k for k in FaultKind if k not in (FaultKind.HANG, FaultKind.STOP) or draw.random() < 0.4),
        num_faults=num_faults,
        seed=draw.randrange(1 << 30),
        num_workers=draw.choice((1, 2, 3, 4)),
        backend=backend,
        start_method=start_method,
        batch_size=draw.choice((1, 3, 8, 16)),
        timeout_s=1.2 if start_method == "fork" else 3.0,
        most_samples=draw.choice((200, 400)),
        faults_a_round=12,
    )
