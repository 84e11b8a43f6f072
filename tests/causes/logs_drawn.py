"""A drawn training, printed as the log of some framework, and then treated as logs are: coloured, cut, interleaved."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from .runs_drawn import Run, Step

_START = datetime(2025, 11, 15, 19, 26, 27, 537000)  # noqa: DTZ001  # loggers write local times


@dataclass
class DrawnLog:
    """One or several files, and the first causes that are right for them; empty: no finding."""

    kind: str
    cause: str
    files: list[bytes]
    right: frozenset[str]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Kind:
    """A way to print: what it tells decides what can be concluded."""

    name: str
    write: Callable[[random.Random, Run, bool], Iterator[str]]
    tells_wait: bool
    averages: bool = False  # over several steps
    tells_pause: bool = True  # time outside of the step shows (time stamps, or a timer that runs on)
    tells_epoch: bool = True


_TEXTS = {
    "checkpoint": [
        "Saving checkpoint at {n} iterations",
        "Saving model checkpoint to out/checkpoint-{n}",
        "=> saved checkpoint 'step_{n}.pth'",
        "checkpoint saved to runs/{n}.ckpt",
        "正在保存检查点 step_{n}.pt",
        "模型已保存到 out/{n}.pth",
    ],
    "evaluation": [
        "***** Running Evaluation *****",
        "Evaluating on the validation set",
        "Running validation at step {n}",
        "开始验证",
        "正在评估模型",
    ],
    "logging": [
        "Uploading 32 images to the tracking server",
        "Writing histograms to tensorboard",
        "wandb: Syncing run metrics",
        "正在上传日志和图片",
    ],
}


def _clock(run: Run) -> Iterator[tuple[Step, float]]:
    """Yield each step with the time at which it ended."""
    now = 0.0
    for step in run.steps:
        now += step.pause_s + step.wait_s + step.work_s
        yield step, now


def _stamp(seconds: float, shape: str) -> str:
    at = _START + timedelta(seconds=seconds)
    match shape:
        case "iso":
            return at.strftime("%Y-%m-%d %H:%M:%S,") + f"{at.microsecond // 1000:03d}"
        case "mm":
            return at.strftime("%m/%d %H:%M:%S")
        case "bracket":
            return at.strftime("[%H:%M:%S.") + f"{at.microsecond // 1000:03d}]"
        case "t":
            return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond:06d}Z"
        case _:
            return at.strftime("%Y/%m/%d %H:%M:%S")


def _pause_line(rng: random.Random, step: Step, texts: dict[str, str], told: bool) -> str | None:
    if not step.doing or not told:
        return None
    text = texts.setdefault(step.doing, rng.choice(_TEXTS[step.doing]))
    return text.format(n=step.total - 1)


def plain(rng: random.Random, run: Run, told: bool) -> Iterator[str]:
    """Step time and data time in some spelling; the time stamp is fine or missing."""
    shape = rng.choice(["iso", "iso", "bracket", "t", ""])
    spelling = rng.choice(
        [
            "step {n} loss 0.52 step_time {took:.3f}s data_time {wait:.3f}s",
            "iter {n}/{total}: loss=0.52 time={took_ms:.1f}ms data={wait_ms:.1f}ms",
            "epoch {e} batch {i}/{per} | loss 0.52 | time 0{took:.4f} | data 0{wait:.4f}".replace("0{", "{"),
            "[train] step={n} batch_time: {took:.4f} data_load_time: {wait:.4f} lr: 1e-4",
            "第 {n} 步 损失 0.52 耗时 {took:.3f} 秒 数据加载耗时 {wait:.3f} 秒",
            "迭代 {n}/{total} loss=0.52 耗时={took_ms:.0f}ms 等待数据时间={wait_ms:.0f}ms",
            "global_step: {n}, loss: 0.52, iter_time: {took:.4f}, dataloader_time: {wait:.4f}",
        ]
    )
    texts: dict[str, str] = {}
    for step, end in _clock(run):
        stamp = f"{_stamp(end - step.wait_s - step.work_s - step.pause_s, shape)} INFO " if shape else ""
        if line := _pause_line(rng, step, texts, told):
            yield stamp + line
        took = step.wait_s + step.work_s + step.pause_s
        wait = step.wait_s
        head = f"{_stamp(end, shape)} INFO " if shape else ""
        yield head + spelling.format(
            n=step.total, total=len(run.steps), e=step.epoch, i=step.step, per=run.per_epoch,
            took=took, wait=wait, took_ms=1000 * took, wait_ms=1000 * wait,
        )  # fmt: skip


def timed(rng: random.Random, run: Run, told: bool) -> Iterator[str]:
    """The step time alone."""
    spelling = rng.choice(
        [
            "step {n} time {took:.3f}s loss 0.52",
            "Iteration {n}: {took_ms:.1f} ms/iter, loss=0.52",
            "step {n}: loss 0.52, {rate:.2f} it/s",
            "train step {n} took {took:.3f} seconds",
            "iter {n} | loss 0.52 | time/step {took_ms:.2f}ms",
            "第 {n} 步 用时 {took:.2f} 秒",
            "{{'step': {n}, 'loss': 0.52, 'step_time': {took:.4f}}}",
        ]
    )
    texts: dict[str, str] = {}
    for step, _ in _clock(run):
        if line := _pause_line(rng, step, texts, told):
            yield line
        took = step.wait_s + step.work_s + step.pause_s
        yield spelling.format(n=step.total, took=took, took_ms=1000 * took, rate=1 / took)


def stamped(rng: random.Random, run: Run, told: bool) -> Iterator[str]:
    """Nothing but time stamps and step numbers."""
    shape = rng.choice(["iso", "bracket", "t", "mm"])
    spelling = rng.choice(
        ["step {n} loss 0.52", "iter {n}/{total} loss=0.52", "[{n}/{total}] loss: 0.52", "第 {n} 步 loss 0.52"]
    )
    texts: dict[str, str] = {}
    for step, end in _clock(run):
        if line := _pause_line(rng, step, texts, told):
            yield f"{_stamp(end - step.wait_s - step.work_s - step.pause_s, shape)} {line}"
        yield f"{_stamp(end, shape)} INFO {spelling.format(n=step.total, total=len(run.steps))}"


def imagenet(rng: random.Random, run: Run, told: bool) -> Iterator[str]:
    """The PyTorch examples: current value, and the mean in brackets."""
    texts: dict[str, str] = {}
    sums = [0.0, 0.0, 0.0]
    for step, _ in _clock(run):
        if step.step == 1:
            sums = [0.0, 0.0, 0.0]
        if line := _pause_line(rng, step, texts, told):
            yield line
        # The timer of the example runs on through what is done within an epoch, and starts anew with each.
        between = 0.0 if step.step == 1 else step.pause_s
        took = step.wait_s + step.work_s + between
        wait = step.wait_s + (between if step.doing else 0.0)
        sums = [sums[0] + took, sums[1] + wait, sums[2] + 1]
        yield (
            f"Epoch: [{step.epoch}][{step.step:4d}/{run.per_epoch}]\tTime {took:6.3f} ({sums[0] / sums[2]:6.3f})\t"
            f"Data {wait:6.3f} ({sums[1] / sums[2]:6.3f})\tLoss 6.9e-01 (6.9e-01)"
        )


def mmcv(rng: random.Random, run: Run, told: bool) -> Iterator[str]:
    """The text logger of mmcv: means over an interval, whole seconds in the time stamp."""
    every = rng.choice([5, 10])
    texts: dict[str, str] = {}
    took = wait = 0.0
    for step, end in _clock(run):
        if line := _pause_line(rng, step, texts, told):
            yield f"{_stamp(end - step.wait_s - step.work_s - step.pause_s, 'day')} - mmseg - INFO - {line}"
        took += step.wait_s + step.work_s + step.pause_s
        wait += step.wait_s
        if step.step % every == 0:
            yield (
                f"{_stamp(end, 'day')} - mmseg - INFO - Epoch [{step.epoch + 1}][{step.step}/{run.per_epoch}]\t"
                f"lr: 1.000e-02, "
                f"eta: 1:02:03, time: {took / every:.3f}, data_time: {wait / every:.3f}, memory: 8123, loss: 0.5210"
            )
            took = wait = 0.0


def mmengine(rng: random.Random, run: Run, told: bool) -> Iterator[str]:
    """The lines of mmengine, printed at every step: means over the last ten."""
    texts: dict[str, str] = {}
    took: list[float] = []
    wait: list[float] = []
    for step, end in _clock(run):
        if line := _pause_line(rng, step, texts, told):
            yield f"{_stamp(end - step.wait_s - step.work_s - step.pause_s, 'mm')} - mmengine - INFO - {line}"
        took.append(step.wait_s + step.work_s + step.pause_s)
        wait.append(step.wait_s)
        yield (
            f"{_stamp(end, 'mm')} - mmengine - INFO - Iter(train) [{step.total:>4}/{len(run.steps)}]  lr: 1.0000e-02  "
            f"eta: 0:02:19  time: {sum(took[-10:]) / len(took[-10:]):.4f}  "
            f"data_time: {sum(wait[-10:]) / len(wait[-10:]):.4f}  loss: 0.7564"
        )


def megatron(rng: random.Random, run: Run, told: bool) -> Iterator[str]:
    """Megatron's line: the time of an iteration in milliseconds."""
    texts: dict[str, str] = {}
    for step, end in _clock(run):
        if line := _pause_line(rng, step, texts, told):
            yield line
        took = step.wait_s + step.work_s + step.pause_s
        yield (
            f" [{_stamp(end, 'iso').replace(',', '.')}] iteration {step.total:8d}/{len(run.steps):8d} | "
            f"consumed samples: {step.total * 16:12d} | elapsed time per iteration (ms): {1000 * took:.1f} | "
            "learning rate: 1.0E-04 | global batch size: 16 | lm loss: 2.1E+00 |"
        )


def tqdm(rng: random.Random, run: Run, told: bool) -> Iterator[str]:
    """A tqdm bar an epoch, drawn by tqdm's own rule: at most ten times a second, the rate a moving average."""
    postfix = rng.choice(["", ", loss=0.521"])
    yield from _bars(rng, run, told, lambda step: postfix)


def tqdm_waits(rng: random.Random, run: Run, told: bool) -> Iterator[str]:
    """The same with the step and the wait behind it, redrawn in every step."""
    yield from _bars(
        rng,
        run,
        told,
        lambda step: (
            f", loss=0.52, tb(ms)={1000 * (step.wait_s + step.work_s + step.pause_s):.0f}, "
            f"data(ms)={1000 * step.wait_s:.1f}"
        ),
        always=True,
    )


def _bars(
    rng: random.Random, run: Run, told: bool, behind: Callable[[Step], str], *, always: bool = False
) -> Iterator[str]:
    texts: dict[str, str] = {}
    begun = now = 0.0
    averages = [0.0, 0.0]
    last = (0, 0.0)
    for step in run.steps:
        if step.step == 1:
            begun, averages, last = now, [0.0, 0.0], (0, now)
            yield f"Epoch {step.epoch}:   0%|          | 0/{run.per_epoch} [00:00<?, ?it/s]\r"
        if line := _pause_line(rng, step, texts, told):
            yield "\n" + line + "\n"
        now += step.pause_s + step.wait_s + step.work_s
        dn, dt = step.step - last[0], now - last[1]
        if not always and dt < 0.1:
            continue
        averages = [0.3 * dn + 0.7 * averages[0], 0.3 * dt + 0.7 * averages[1]]
        last = (step.step, now)
        rate = averages[0] / averages[1]
        shown = f"{rate:5.2f}it/s" if rate >= 1 else f"{1 / rate:5.2f}s/it"
        done = step.step / run.per_epoch
        elapsed, left = now - begun, (run.per_epoch - step.step) / rate
        bar = "█" * int(10 * done) + " " * (10 - int(10 * done))
        times = f"{_mmss(elapsed)}<{_mmss(left)}, {shown}{behind(step)}"
        yield f"Epoch {step.epoch}: {100 * done:3.0f}%|{bar}| {step.step}/{run.per_epoch} [{times}]\r"


def _mmss(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute:02d}:{second:02d}"


def slow_reports(rng: random.Random, run: Run, told: bool) -> Iterator[str]:
    """A watcher that reports slow batches only, as in the report that a user sent."""
    del told
    typical = sorted(step.work_s for step in run.steps)[len(run.steps) // 2]
    for step, end in _clock(run):
        if step.wait_s > max(3 * typical, 0.3):
            name = rng.choice(["prefetch_buffer_exhausted", "very_slow_io (possibly disk bottleneck)"])
            yield f"{_stamp(end - step.work_s, 'iso')} WARNING: [SLOW BATCH #{step.total}] {step.wait_s:.2f}s - {name}"
        if step.total % 50 == 0:
            part = [one.wait_s for one in run.steps[step.total - 50 : step.total]]
            yield (
                f"{_stamp(end, 'iso')} INFO: [DATA LOAD] Recent 50 batches: avg={20 * sum(part):.1f}ms, "
                f"min={1000 * min(part):.1f}ms, max={1000 * max(part):.1f}ms, std=1.0ms"
            )
            times = f"{_mmss(end)}<04:19, {1 / typical:5.2f}it/s, tb(ms)={1000 * typical:.0f}"
            yield f"Epoch 2:  65%|██████▍   | {step.step}/{run.per_epoch} [{times}]"


KINDS = {
    kind.name: kind
    for kind in (
        Kind("plain", plain, tells_wait=True, tells_epoch=False),
        Kind("timed", timed, tells_wait=False, tells_epoch=False),
        Kind("stamped", stamped, tells_wait=False, tells_epoch=False),
        Kind("imagenet", imagenet, tells_wait=True),
        Kind("mmcv", mmcv, tells_wait=True, averages=True),
        Kind("mmengine", mmengine, tells_wait=True, tells_epoch=False),
        Kind("megatron", megatron, tells_wait=False, tells_epoch=False),
        Kind("tqdm", tqdm, tells_wait=False),
        Kind("tqdm_waits", tqdm_waits, tells_wait=True),
        Kind("slow_reports", slow_reports, tells_wait=True),
    )
}


def right_causes(run: Run, kind: Kind, *, told: bool, workers_told: bool) -> frozenset[str]:
    """Return the first causes that are right for what this log tells; an empty text stands for no finding."""
    if kind.name == "slow_reports":
        return frozenset({"batch_lockstep"})
    match run.cause:
        case "" | "compute":
            return frozenset({""})
        case "batch_lockstep":
            if kind.averages:
                return frozenset({"loader_throughput"})
            if kind.tells_wait or workers_told:
                return frozenset({"batch_lockstep"})
            return frozenset({"batch_lockstep", "unknown"})  # the distance is there, what it is cannot be read
        case "loader_throughput":
            return frozenset({"loader_throughput"}) if kind.tells_wait else frozenset({""})
        case "straggler_sample":
            work = sorted(step.work_s for step in run.steps)[len(run.steps) // 2]
            late = sum(step.wait_s > 5 * work for step in run.steps)
            if kind.tells_wait and late >= 3:
                return frozenset({"straggler_sample"})
            return frozenset({"straggler_sample", "unknown"}) if kind.tells_wait else frozenset({"unknown"})
        case "checkpoint" | "evaluation" | "logging":
            if (
                kind.name == "imagenet" and not told
            ):  # its data time runs on through the pause: late batches, as it says
                return frozenset({"unknown", "straggler_sample"})
            return frozenset({run.cause}) if told else frozenset({"unknown"})
        case "epoch_start":
            return frozenset({"epoch_start"}) if kind.tells_epoch else frozenset({"unknown", "epoch_start"})
        case "hidden_periodic" | "hidden_irregular" | "drift":
            return frozenset({"unknown"})
    raise ValueError(run.cause)


_CHATTER = [
    "/usr/lib/python3.11/site-packages/torch/utils/data/dataloader.py:624: UserWarning: something harmless",
    "loss is finite, continuing",
    "Model has 44.5 M parameters, 3 groups, dropout 0.1",
    "[W socket.cpp:426] The server socket cannot be initialized",
    "学习率调整为 0.0001",
    "GPU memory: 8123 MiB / 24576 MiB",
]
_COLOURS = ("\x1b[32m", "\x1b[1;33m", "\x1b[36m")


def draw_log(rng: random.Random, run: Run, kind: Kind) -> DrawnLog:
    """Return a run as a log of one kind, with what happens to logs happening to it."""
    told = rng.random() < 0.75 or run.cause in {"", "compute"}
    workers_told = rng.random() < 0.6
    lines = list(kind.write(rng, run, told))
    notes = []
    head = ["torch 2.4.0, CUDA 12.1"]
    if workers_told:
        head.append(
            rng.choice(
                [
                    "config: batch_size={b} num_workers={w} prefetch_factor={p}",
                    "  num_workers: {w}",
                    "Namespace(workers={w}, lr=0.1)",
                ]
            )
        )
    head = [line.format(b=run.batch_size, w=run.num_workers, p=run.prefetch_factor) for line in head]
    is_bar = kind.name.startswith("tqdm")
    ends = ["" if line.endswith(("\r", "\n")) else "\n" for line in lines]
    text = [line + end for line, end in zip(lines, ends, strict=True)]
    if not is_bar and kind.name != "slow_reports" and rng.random() < 0.2:
        text, note = _ranks(rng, text)
        notes.append(note)
    if rng.random() < 0.25 and not is_bar:
        text = [rng.choice(_COLOURS) + line.rstrip("\n") + "\x1b[0m\n" for line in text]
        notes.append("colours")
    if rng.random() < 0.3:
        for _ in range(len(text) // 15):
            text.insert(rng.randrange(len(text)), ("\n" if is_bar else "") + rng.choice(_CHATTER) + "\n")
        notes.append("chatter")
    if rng.random() < 0.2 and kind.name not in {"mmengine", "slow_reports"} and len(run.steps) > 250:
        first = rng.randrange(len(text) // 4, len(text) // 2)
        del text[first : first + len(text) // 8]
        notes.append("gap")
    if rng.random() < 0.2 and kind.name not in {"mmengine", "slow_reports"}:
        for _ in range(3):
            index = rng.randrange(len(text))
            text[index] = text[index][: rng.randrange(1, 1 + len(text[index]))].rstrip("\n\r") + "\n"
        notes.append("cut lines")
    files = ["".join(line + "\n" for line in head) + "".join(text)]
    if rng.random() < 0.15 and not is_bar and kind.name != "mmengine":
        cut = files[0].index("\n", len(files[0]) // 2) + 1
        files = [files[0][cut:], files[0][:cut]]  # rotated, and given in the wrong order
        notes.append("rotated")
    raw = [file.encode() for file in files]
    if rng.random() < 0.1:
        raw = [file.replace(b"\n", b"\r\n") for file in raw]
        notes.append("CRLF")
    right = right_causes(run, kind, told=told, workers_told=workers_told)
    return DrawnLog(kind.name, run.cause, raw, right, (*notes, "told" if told else "silent", f"workers={workers_told}"))


def _ranks(rng: random.Random, text: list[str]) -> tuple[list[str], str]:
    """Several ranks write the same steps, one behind the other."""
    count = rng.choice([2, 4])
    shape = rng.choice(["[rank{r}]: ", "{r}: ", "[default{r}]:", "", "rank {r} | "])
    return [shape.format(r=rank) + line for line in text for rank in range(count)], f"{count} ranks {shape!r}"
