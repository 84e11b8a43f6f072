"""Explain a log from Python: a loop in which a checkpoint costs more than a quarter of the time."""

import tempfile
from pathlib import Path

from headrace.causes import explain_logs


def write_log(path: Path) -> None:
    """Write what a training of 200 steps might print; it saves every 40 steps."""
    lines = []
    for step in range(1, 201):
        is_behind_a_save = step % 40 == 1 and step > 1
        if is_behind_a_save:
            lines.append(f"saving checkpoint to out/step_{step - 1}.pt")
        lines.append(f"step {step}/200 loss 0.52 step_time {0.2 + 4.0 * is_behind_a_save:.3f}s data_time 0.001s")
    path.write_text("\n".join(lines))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.log"
        write_log(log)
        found = explain_logs([str(log)])
    print(found.verdict.value)
    for finding in found.findings:
        print(f"{finding.cause.value}: {finding.share:.0%} of the time")
        for sentence in finding.evidence:
            print(f"  {sentence.en}")
