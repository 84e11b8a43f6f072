"""Settings that a log tells: workers, prefetch, batch size, intervals."""

from __future__ import annotations

import re

_NAMES = {
    "num_workers": r"(?:dataloader_|train_)?num[_ ]workers|workers_per_gpu|\bworkers\b|n_workers|nworkers|-j",
    "prefetch_factor": r"(?:dataloader_)?prefetch_factor",
    "batch_size": r"(?:train_|per_device_train_|micro_)?batch[_ ]size|samples_per_gpu",
    "accumulate": r"gradient[_ ]accumulation[_ ]steps|accumulate_grad_batches|accum(?:ulation)?_steps|grad_accum\w*",
    "checkpoint": r"save_steps|(?:checkpoint|ckpt|save)_?(?:interval|every(?:_n_(?:train_)?steps)?|freq(?:uency)?)"
    r"|checkpoint_config\s*=\s*dict\([^)]*?interval",
    "evaluation": r"eval_steps|(?:eval(?:uation)?|val(?:idation)?)_?(?:interval|every(?:_n_steps)?|freq(?:uency)?)"
    r"|val_check_interval|evaluation\s*=\s*dict\([^)]*?interval",
    "num_epochs": r"num[_ ](?:train[_ ])?epochs|max_epochs",
    "num_steps": r"total optimization steps|max_steps|max_iters",
    "logging": r"logging_steps|log_?(?:interval|every(?:_n_steps)?|freq(?:uency)?|steps)",
}
_SETTINGS = re.compile(
    "|".join(rf"(?P<{name}>{pattern})" for name, pattern in _NAMES.items()),
    re.IGNORECASE,
)
_VALUE = re.compile(r"['\"]?\s*(?:[:=：]|\s)\s*(\d+)(?![\d.]|\s*(?:-|~|→|->|到)\s*\d)")
_CREATED = re.compile(r"This DataLoader will create (\d+) worker processes")  # torch's own warning


def read_settings(text: str) -> dict[str, int]:
    """Return the settings that a line tells; a range such as `16-20` is advice, not a setting.

    >>> read_settings("- num_workers: 32, prefetch_factor=12"), read_settings("num_workers: 16-20")
    ({'num_workers': 32, 'prefetch_factor': 12}, {})
    """
    found: dict[str, int] = {}
    if created := _CREATED.search(text):
        found["num_workers"] = int(created[1])
    for match in _SETTINGS.finditer(text):
        value = _VALUE.match(text, match.end())
        if value is not None and match.lastgroup is not None:
            found.setdefault(match.lastgroup, int(value[1]))
    return found
