"""Lines of loggers that others wrote, with figures of our own, and what logs made of them amount to.

The shapes are those of public logs: docs/reference/explain-world.md lists where each was seen.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from headrace.causes import explain_logs
from headrace.causes.logs.fields import read_plan, split_numbers
from headrace.errors import UnusableInput
from headrace.model import Cause, Confidence, Findings

# line: step, steps an epoch, step time, wait, and the means of both so far, as far as it tells them
TIMM = (
    "Train: 2 [ 100/1251 (  8%)]  Loss: 6.9 (6.9)  Time: 0.517s, 247.5/s  (0.530s, 241.4/s)  LR: 1e-05  "
    "Data: 0.010 (0.200)"
)
SHAPES = {
    TIMM: (100, 1251, 0.517, 0.010, 0.530, 0.200),
    "INFO epoch: 3/80, acc_iter=50, cur_iter=49/3712, batch_size=4, time_cost(epoch): 00:25/30:12, d_time=0.01(0.02), "
    "f_time=0.40(0.41), b_time=0.41(0.45), lr=0.001": (49, 3712, 0.41, 0.01, 0.45, 0.02),
    "ppcls INFO: [Train][Epoch 1/120][Iter: 10/5004]lr: 0.1, loss: 7.0, batch_cost: 1.2s, reader_cost: 0.7, ips: 100 "
    "images/sec, eta: 1 day": (10, 5004, 1.2, 0.7, None, None),
    "epoch: [1/500], global_step: 10, lr: 0.0001, loss: 2.1, avg_reader_cost: 0.1 s, avg_batch_cost: 0.5 s, ips: 32 "
    "samples/s": (10, None, 0.5, 0.1, None, None),
    "eta: 1 day, 2:03:04  iter: 20  loss: 1.2 (1.4)  time: 0.3501 (0.4102)  data: 0.0101 (0.0502)  max mem: 4000": (
        20, None, 0.3501, 0.0101, 0.4102, 0.0502,
    ),
    "eta: 0:10:11  iter: 19  total_loss: 1.2  time: 0.35  last_time: 0.33  data_time: 0.01  last_data_time: 0.005": (
        19, None, 0.35, 0.01, None, None,
    ),
    "Epoch: [0]  [  20/5004]  eta: 1:02:03  lr: 0.1  loss: 1.0 (1.1)  time: 0.51  data: 0.0001  max mem: 3000": (
        20, 5004, 0.51, 0.0001, None, None,
    ),
    "Train: [0/300][10/1251]  eta 1:02:03 lr 0.0  time 5.1234 (5.2345)  loss 6.9 (6.9)": (
        10, 1251, 5.1234, None, 5.2345, None,
    ),
    "Train Epoch: 0 [  1024/12811 (8%)] Data (t): 0.512 Batch (t): 1.2, 800/s, 800/s/gpu LR: 0.0001": (
        1024, 12811, 1.2, 0.512, None, None,
    ),
    "[exp][epoch:  0, iter:   1,600, lr:(2.0e-04,)] [eta: 1 day, 2:03:04, time (data): 0.45 (0.012)] l_pix: 1.0e-2": (
        1600, None, 0.45, 0.012, None, None,
    ),
    " iteration       10/  500000 | consumed samples:  100 | elapsed time per iteration (ms): 1234.5 | number of "
    "skipped iterations:   0 |": (10, 500000, 1.2345, None, None, None),
    "steps: 10 loss: 1.2 iter time (s): 1.234 samples/sec: 12.3": (10, None, 1.234, None, None, None),
    "(trainer:680) INFO: 1epoch:train:1-100batch: iter_time=0.12, forward_time=0.2, loss=3, train_time=1.234": (
        100, None, 1.234, 0.12, None, None,
    ),
    "(trainer:733) INFO: 1epoch:train:1-50batch:50num_updates: iter_time=1.2e-04, forward_time=0.2, acc=0.2, "
    "optim_step_time=0.11, optim0_lr0=4.0e-06, train_time=1.1": (50, None, 1.1, 0.00012, None, None),
    "INFO:root:[1,   150/ 2400] - losses - Parent: 0.1 - Child: 7.1 [wd: 5.0e-02] [mem: 6.1e+04] (1250.0 ms)": (
        150, 2400, 1.25, None, None, None,
    ),
    "DBNet INFO: [3/200], [47/604], global_step: 1255, speed: 12.1 samples/sec, acc: 0.9, lr:0.0008, time:0.82": (
        47, 604, 0.82, None, None, None,
    ),
    'json_stats: {"_type": "train_iter", "dt": 0.50, "dt_data": 0.01, "epoch": "1/20", "iter": "10/90"}': (
        10, 90, 0.50, 0.01, None, None,
    ),
    "| epoch   1 |   200/ 2983 batches | lr 20.0 | ms/batch 148.77 | loss 5.4": (200, 2983, 0.14877, None, None, None),
    "Training epoch 0, iteration 10/100 | lr: 0.1 | global_step: 10 | train_step_timing in s: 1.23": (
        10, 100, 1.23, None, None, None,
    ),
    "[train][1] progress: 1/1 step: 1100, time: 50.2, speed: 2.0 steps/s": (1100, None, 0.5, None, None, None),
    "iter 10: loss 3.2, time 123.45ms, mfu 12.3%": (10, None, 0.12345, None, None, None),
    "completed step: 10, seconds: 1.23, TFLOP/s/device: 100": (10, None, 1.23, None, None, None),
    "INFO ts/train.py:232 step:10 smpl:640 ep:2 loss:1.073 lr:2.0e-06 updt_s:0.296 data_s:0.001": (
        10, None, 0.296, 0.001, None, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("line", SHAPES)
def test_a_line_of_any_logger_is_read_by_its_names_and_units(line: str) -> None:
    plan = read_plan(line)
    told = plan.read(split_numbers(line)[1])
    expected = [np.nan if value is None else value for value in SHAPES[line][2:]]
    assert (told.step, told.of or None, plan.is_training) == (*SHAPES[line][:2], True)
    assert np.allclose(told[3:7], expected, equal_nan=True)


@pytest.mark.parametrize(
    ("line", "step", "seconds"),
    [
        ("epoch 001:    100 / 4045 loss=12.3, wps=1234, ups=1.25, num_updates=100, train_wall=80", 100, 0.8),
        ('{"epoch": 1, "update": 0.05, "loss": "6.1", "ups": "0.5", "num_updates": "200"}', 200, 2.0),
        ("step   10/18865 | loss 7.6 (+nanz)| lr 1e-5 | 1234.5 ms | 40.1% bf16 MFU | 200000 tok/s", 10, 1.2345),
        ("solver.cpp:228] Iteration 100 (1.25 iter/s, 80.0s/100 iters), loss = 2", 100, 0.8),
    ],
)
def test_a_rate_is_read(line: str, step: int, seconds: float) -> None:
    told = read_plan(line).read(split_numbers(line)[1])
    assert (told.step, told.took_s) == (step, pytest.approx(seconds))


def test_a_time_is_held_against_the_rate_beside_it_in_each_line_and_a_rate_of_zero_is_none() -> None:
    lines = {"step: 10, time: 0.5, speed: 2.0 steps/s": 0.5, "step: 20, time: 50.0, speed: 0.2 steps/s": 5.0}
    plan = read_plan(next(iter(lines)))
    assert [plan.read(split_numbers(line)[1]).took_s for line in lines] == pytest.approx(list(lines.values()))
    line = "itr 0/778: speed: 0.00(0.00s r0.00)s/itr"
    assert np.isnan(read_plan(line).read(split_numbers(line)[1]).took_s)


def test_samples_a_second_and_the_time_since_the_start_are_read() -> None:
    for line, seconds in (("Batch [50] Speed: 640.0 samples/sec", 0.1), ("avg. samples / sec: 32.00", 2.0)):
        assert read_plan(line).read(split_numbers(line)[1], batch_size=64).took_s == pytest.approx(seconds)
    for line, seconds in (("ups=0.4, wall=1034, train_wall=263", 1034), ("5276 tgt tok/s;  18191 s elapsed", 18191)):
        assert read_plan(line).read(split_numbers(line)[1]).at_s == seconds


def test_a_percentage_is_no_time() -> None:
    assert not read_plan("Train Step 1/10 | Time Spent [Dataload: 64.5%, Forward: 16.2%]").has_times


@pytest.mark.parametrize(
    "line", ["time=2026-01-04 12:00:00 step: 3 x", "Up. 30 : Sen. 5 : Cost 41.04", "time: 1 minute"]
)
def test_what_is_no_duration_is_not_read_as_one(line: str) -> None:
    assert not read_plan(line).has_times


@pytest.fixture
def explain(tmp_path: Path) -> Callable[[Iterable[str]], Findings]:
    def read(lines: Iterable[str]) -> Findings:
        (tmp_path / "x.log").write_text("\n".join(lines) + "\n")
        return explain_logs([str(tmp_path / "x.log")])

    return read


def averaged(*, epochs: int, per_epoch: int, every: int) -> Iterable[str]:
    """As the ImageNet example prints: a step, and the mean so far; every tenth step waits for 2 s."""
    for epoch in range(epochs):
        waits = np.where(np.arange(per_epoch) % 10 == 3, 2.0, 0.01)
        for step in range(0, per_epoch, every):
            wait, mean = waits[step], waits[: step + 1].mean()
            yield (
                f"Epoch: [{epoch}][{step:3d}/{per_epoch}]  Time {wait + 0.2:.3f} ({mean + 0.2:.3f})  Data {wait:.3f} "
                f"({mean:.3f})"
            )


def test_the_mean_so_far_counts_and_not_the_one_step_that_was_printed(explain: Callable[..., Findings]) -> None:
    found = explain(averaged(epochs=2, per_epoch=196, every=50))
    true_share = (0.1 * 2.0 + 0.9 * 0.01) / (0.2 + 0.1 * 2.0 + 0.9 * 0.01)
    assert found.figures["wait_share"] == pytest.approx(true_share, abs=0.03)
    assert found.findings[0].cause in {Cause.LOADER_THROUGHPUT, Cause.BATCH_LOCKSTEP}
    assert "means that the log prints" in found.facts[1].en


def stamped(second: float) -> str:
    return f"2026-01-02 {int(second) // 3600:02d}:{int(second) // 60 % 60:02d}:{second % 60:06.3f}"


def test_steps_behind_the_last_line_of_an_epoch_are_steps_and_no_slow_start(explain: Callable[..., Findings]) -> None:
    lines, now = [], 0.0
    for epoch in range(6):
        for step in range(196):
            now += 0.5
            if step % 100 == 0:
                lines.append(f"{stamped(now)} INFO Epoch: [{epoch}][{step}/196] loss 1.0")
    found = explain(lines)
    assert not found.findings
    assert found.figures["step_mean_s"] == pytest.approx(0.5, rel=0.05)


def test_the_time_between_two_runs_in_one_log_is_lost_to_nothing(explain: Callable[..., Findings]) -> None:
    lines, now = [], 0.0
    for _ in range(3):
        lines += [f"{stamped(now)} INFO {name} = {number}" for number, name in enumerate(["lr", "gpus", "seed", "amp"])]
        for step in range(1, 40):
            now += 0.5
            lines.append(f"{stamped(now)} INFO epoch: 1, iter: {step}/5000, loss: 1.0")
        lines.append(f"{stamped(now)} INFO Saving checkpoint to last.pth")
        now += 20_000
    assert not explain(lines).findings


def test_single_steps_that_are_quick_beside_a_slow_clock(explain: Callable[..., Findings]) -> None:
    """SlowFast prints the tenth step; eight workers in lock-step make it look quick."""
    lines = [
        f'{stamped(40.0 * line)} json_stats: {{"dt": 1.21, "dt_data": 0.01, "epoch": "1/9", "iter": "{10 * line}/900"}}'
        for line in range(1, 40)
    ]
    found = explain(lines)
    assert found.figures["wait_share"] == pytest.approx(0.7, abs=0.03)
    assert found.findings[0].cause is Cause.LOADER_THROUGHPUT


def test_a_sample_of_steps_tells_its_error(explain: Callable[..., Findings]) -> None:
    rng = np.random.default_rng(0)
    waits = rng.exponential(0.3, 40)
    found = explain(f"step {50 * n} time {wait + 0.2:.3f}s data {wait:.3f}s" for n, wait in enumerate(waits))
    assert found.figures["wait_share"] == pytest.approx(waits.sum() / (waits + 0.2).sum(), abs=0.05)
    assert "single steps" in found.facts[1].en


def test_a_few_lines_are_read_as_far_as_they_go(explain: Callable[..., Findings]) -> None:
    found = explain(f"step {10 * n}/500 time 0.39s data 0.01s" for n in range(1, 6))
    assert found.figures["wait_share"] == pytest.approx(0.01 / 0.39, abs=0.01)
    assert any("too few for patterns" in limit.en for limit in found.limits)


def test_one_line_with_its_mean_is_enough(explain: Callable[..., Findings]) -> None:
    found = explain(["iter: 87940  loss: 0.6 (0.9)  time: 0.5063 (0.5132)  data: 0.0062 (0.0078)"])
    assert found.figures["step_mean_s"] == pytest.approx(0.5132)
    assert found.figures["wait_share"] == pytest.approx(0.0078 / 0.5132, abs=0.002)


def test_a_slow_first_stretch_is_told(explain: Callable[..., Findings]) -> None:
    lines = [
        f"Epoch [1][{100 * n}/9000] time: {6.2 if n == 1 else 0.15}, data_time: {6.0 if n == 1 else 0.01}"
        for n in range(1, 9)
    ]
    first = explain(lines).findings[0]
    assert (first.cause, first.share > 0.7) == (Cause.EPOCH_START, True)


def test_an_evaluation_without_time_stamps_counts_by_its_own_times(explain: Callable[..., Findings]) -> None:
    lines = []
    for epoch in range(4):
        lines += [f"Epoch: [{epoch}][{step}/100]  Time 0.200 (0.200)  Data 0.001 (0.001)" for step in range(0, 100, 10)]
        lines += [f"Test: [{step}/50]  Time 0.400 (0.400)  Loss 1.0" for step in range(0, 50, 10)]
    found = explain(lines)
    assert found.findings[0].cause is Cause.EVALUATION
    assert found.findings[0].confidence is not Confidence.CERTAIN


def test_a_step_and_its_times_may_stand_in_lines_of_their_own(explain: Callable[..., Findings]) -> None:
    lines = [
        line
        for n in range(1, 30)
        for line in (
            f"   --> STEP: {25 * n}/900 -- GLOBAL_STEP: {25 * n}",
            "     | > loss: 2.0",
            "     | > step_time: 1.4",
            "     | > loader_time: 0.7",
        )
    ]
    assert explain(lines).figures["wait_share"] == pytest.approx(0.5, abs=0.01)


def test_a_log_of_an_evaluation_alone_has_steps_too(explain: Callable[..., Findings]) -> None:
    found = explain(f"Test: [{10 * n}/900] Data 0.300 (0.300) Batch 0.400 (0.400)." for n in range(20))
    assert found.figures["wait_share"] == pytest.approx(0.75, abs=0.01)


def test_lines_that_look_like_steps_and_are_not_read_are_shown(explain: Callable[..., Findings]) -> None:
    with pytest.raises(UnusableInput, match="the 3rd step of 9"):
        explain(f"in batch of {n}: the 3rd step of 9 was {n} times 7 sec" for n in range(12))


def test_of_two_jobs_that_write_by_turns_the_one_ahead_counts(explain: Callable[..., Findings]) -> None:
    lines = []
    for n in range(1, 200):
        lines.append(f"step {n}/900 time 0.400s data 0.100s")
        lines += [f"step {n - 60}/900 time 0.500s data 0.010s"] * (n > 60)
    found = explain(lines)
    assert not found.findings or found.findings[0].cause is Cause.LOADER_THROUGHPUT
    assert found.figures["wait_share"] == pytest.approx(0.25, abs=0.01)


def test_lines_whose_place_in_the_epoch_wanders_are_one_stream(explain: Callable[..., Findings]) -> None:
    """A line every 25 steps of epochs of 36."""
    found = explain(f"step {n % 36}/36 time 0.400s data 0.010s" for n in range(24, 4000, 25))
    assert found.figures["step_mean_s"] == pytest.approx(0.4, abs=0.01)


def test_what_comes_oftener_than_any_step_is_none(explain: Callable[..., Findings]) -> None:
    with pytest.raises(UnusableInput, match="no line tells of training steps"):
        explain(f"step {number} time 0.00000003 s loss 0.3" for number in range(1, 300))


def test_bars_in_the_pauses_of_the_first_one_are_evaluations(explain: Callable[..., Findings]) -> None:
    lines = []
    for _ in range(5):
        lines += [f" {n}%|##   | {n}/100 [00:{n // 2:02d}<00:{50 - n // 2:02d},  2.00it/s]" for n in range(1, 101)]
        for _ in range(2):
            lines += [f" {n}%|##   | {10 * n}/1000 [00:{n // 5:02d}<00:10, 50.00it/s]" for n in range(1, 101)]
    found = explain(lines)
    assert found.figures["step_typical_s"] == pytest.approx(0.5, rel=0.1)
    assert (found.findings[0].cause, found.findings[0].confidence) == (Cause.EVALUATION, Confidence.LIKELY)
    assert found.findings[0].share == pytest.approx(40 / 90, abs=0.05)


def test_the_timer_behind_an_evaluation_is_no_step(explain: Callable[..., Findings]) -> None:
    lines = []
    for n in range(200):
        lines += [f"epoch:{n // 50} || iter:{10 * n} || Loss:0.5", "Timer: 0.50"]
        if n % 50 == 49:
            lines += ["start eval ...", "Timer: 90.0"]
    assert explain(lines).figures["step_mean_s"] == pytest.approx(0.5, abs=0.01)


def test_means_since_the_epoch_began_are_undone(explain: Callable[..., Findings]) -> None:
    """As torchvision's reference prints them, every step: the first one of an epoch shows in all that follow."""
    lines = []
    for epoch in range(8):
        took, wait = np.array([1.6, *[0.3] * 5]), np.array([1.3, *[0.02] * 5])
        for n in range(6):
            times = f"time: {took[: n + 1].mean():.4f}  data: {wait[: n + 1].mean():.4f}"
            lines.append(f"Epoch: [{epoch}]  [{n}/6]  eta: 0:00:09  loss: 1.2 (1.3)  {times}  max mem: 2000")
    found = explain(lines)
    assert found.figures["step_typical_s"] == pytest.approx(0.3, abs=0.02)
    assert found.findings[0].cause is Cause.EPOCH_START


def test_a_few_waits_at_one_distance_are_lock_step(explain: Callable[..., Findings]) -> None:
    found = explain(
        f"Epoch: [1][{n}/900]\tTime {300.2 if n % 4 == 1 else 1.7:.3f}\tData {298.5 if n % 4 == 1 else 0.001:.3f}"
        for n in range(4, 22)
    )
    assert (found.findings[0].cause, found.findings[0].figures["period_steps"]) == (Cause.BATCH_LOCKSTEP, 4)


def test_records_that_share_a_line_are_read_one_by_one(explain: Callable[..., Findings]) -> None:
    records = [f"{stamped(5.0 * n)} INFO epoch: 1, batch: {n}, avg_reader_cost: 0.1 sec, avg_batch_cost: 5.0 sec"
               for n in range(1, 31)]  # fmt: skip
    found = explain("".join(records[n : n + 3]) for n in range(0, 30, 3))
    assert found.figures["steps"] == pytest.approx(30, abs=2)
    assert found.figures["wait_share"] == pytest.approx(0.02, abs=0.01)


def test_a_step_of_each_of_several_starts_is_no_counter(explain: Callable[..., Findings]) -> None:
    """Starts with other numbers of steps, of which only the first is printed."""
    lines = [
        f"{stamped(n)} INFO Train: [{n}/5][0/{1 if n < 3 else 8}]\ttime {3.0 if n in (0, 3) else 0.6:.4f} (0.6)"
        for n in range(5)
    ]
    assert explain(lines).figures["step_typical_s"] < 1.2


def test_waits_stand_beside_the_step_where_the_clock_agrees_with_both(explain: Callable[..., Findings]) -> None:
    lines, at_s = [], 0.0
    for step in range(100, 6001, 100):
        wait_s = 0.02 if step % 200 else 0.1
        at_s += 100 * (0.4 + wait_s)
        lines.append(f"INFO {stamped(at_s)[:19]} train.py:9 step:{step} loss:0.2 updt_s:0.400 data_s:{wait_s:.3f}")
    found = explain(lines)
    assert found.figures["step_mean_s"] == pytest.approx(0.46, rel=0.03)
    assert found.figures["wait_share"] == pytest.approx(0.06 / 0.46, abs=0.01)


def test_rounded_means_so_far_are_means_and_add_up_to_what_they_say(explain: Callable[..., Findings]) -> None:
    text = "".join(
        f"epoch [{epoch}/9] batch [{count}/200] time 0.200 ({0.2 + 0.9 / count:.3f}) data 0.000 ({0.9 / count:.3f})\n"
        for epoch in range(1, 9)
        for count in range(5, 201, 5)
    )
    found = explain(text.splitlines())
    assert found.figures["wait_share"] == pytest.approx(0.9 / 40.9, abs=0.006)


def test_an_elapsed_time_in_hours_may_stand_in_a_line_of_its_own(explain: Callable[..., Findings]) -> None:
    blocks = (f"time elapsed: 0:{k:02}:20\nnum of updates: {k * 1000}\nret loss: 0.{k}\n====" for k in range(1, 20))
    assert explain(blocks).figures["step_mean_s"] == pytest.approx(0.06, rel=0.1)  # the last one has no time yet


def test_a_few_lines_with_the_time_since_the_start(explain: Callable[..., Findings]) -> None:
    text = "".join(f'{{"epoch": 0, "step": {10 * k}, "loss": 2.1, "time": {7 + 40 * k}}}\n' for k in range(3))
    assert explain(text.splitlines()).figures["step_mean_s"] == pytest.approx(4.0, rel=0.05)


def test_a_slow_first_step_does_not_speak_for_a_few_lines(explain: Callable[..., Findings]) -> None:
    text = "".join(f"step {k} time {0.5 if k else 20}s data_time {0.0 if k else 12}s\n" for k in range(4))
    found = explain(text.splitlines())
    assert found.figures["wait_share"] < 0.01
    assert found.findings == ()


def test_an_epoch_with_its_time_and_validation_in_one_line_is_read(explain: Callable[..., Findings]) -> None:
    text = "".join(f"Epoch {k}/30 [41.5s] | Train Loss: 0.41 | Val Loss: 0.52\n" for k in range(1, 12))
    assert explain(text.splitlines()).figures["step_typical_s"] == pytest.approx(41.5, rel=0.02)


def test_lines_with_a_wait_beside_lines_without_one_are_of_something_else(explain: Callable[..., Findings]) -> None:
    text = ""
    for epoch in range(5):
        text += "".join(f"Extract: [{k}/30] Time 0.050 (0.050) Data 0.001 (0.001)\n" for k in range(0, 30, 10))
        text += "".join(f"Epoch: [{epoch}][{k}/90] Time 7.000 (7.000) Loss 0.2 (0.3)\n" for k in range(0, 90, 10))
    found = explain(text.splitlines())
    assert found.figures["step_mean_s"] == pytest.approx(7.0, rel=0.02)
    assert "wait_share" not in found.figures


def test_a_save_is_charged_with_no_time_before_another_line(explain: Callable[..., Findings]) -> None:
    text, at_s = "", 0
    for epoch in range(1, 9):
        for batch in range(10, 101, 10):
            at_s += 5
            text += f"{stamped(at_s)} INFO [batch {batch}/100, epoch {epoch}/8]: loss:0.2\n"
        text += f"{stamped(at_s + 40)} INFO Results of this round:\n"
        text += f"{stamped(at_s + 41)} INFO checkpoint has been saved to best.ckpt\n"
        at_s += 42
    assert all(one.cause is not Cause.CHECKPOINT for one in explain(text.splitlines()).findings)


def test_a_clock_in_words_is_the_time_since_the_start(explain: Callable[..., Findings]) -> None:
    found = explain(
        f"time:  {80 * n // 3600}h {80 * n // 60 % 60:2}min {80 * n % 60:2}s 250ms, remaining: 3h 2min 1s 9ms, "
        f"epoch: 1/50, batch: {200 * n}/90000, avg loss: 1.5"
        for n in range(1, 120)
    )
    assert found.figures["step_mean_s"] == pytest.approx(0.4, rel=0.01)


@pytest.mark.parametrize("took", ["Time taken for 1 epoch: 90.0 secs", "Training epoch took: 0:01:30"])
def test_the_time_of_an_epoch_may_stand_in_a_line_of_its_own(took: str, explain: Callable[..., Findings]) -> None:
    found = explain(line for n in range(8) for line in (f"Epoch {n} Loss 0.5", took))
    assert found.figures["step_typical_s"] == pytest.approx(90.0)


def test_printed_steps_that_hold_an_evaluation_stand_for_themselves(explain: Callable[..., Findings]) -> None:
    """As nanoGPT prints them: a line every 10 steps, and each 250th step evaluates before it is printed."""
    lines = []
    for step in range(10, 10_010, 10):
        if step % 250 == 0:
            lines.append(f"step {step}: train loss 3.1000, val loss 3.2000")
        lines.append(f"iter {step}: loss 3.1000, time {30_500 if step % 250 == 0 else 500:.2f}ms, mfu 12.00%")
    found = explain(lines)
    assert found.figures["step_typical_s"] == pytest.approx(0.5)
    assert found.findings[0].cause is Cause.EVALUATION
    assert found.findings[0].share == pytest.approx(30 / 155, abs=0.02)


def test_a_bar_of_other_work_and_one_shorter_than_a_second(explain: Callable[..., Findings]) -> None:
    lines = [f"Processing chunks: {n}it [00:{2 * n:02d},  2.00s/it]" for n in range(1, 20)]
    for _ in range(6):
        lines += [f"Training: {25 * n}%|##   | {n}/4 [00:00<00:00, 10.00it/s]" for n in (1, 2, 3, 4)]
        lines += [f"Validation: {n}%|##   | {n}/100 [00:0{n // 50}<00:00, 50.00it/s]" for n in (10, 50, 100)]
    found = explain(lines)
    assert found.findings[0].cause is Cause.EVALUATION
    assert found.figures["step_typical_s"] == pytest.approx(0.1, rel=0.1)


def test_what_happened_once_is_not_certain(explain: Callable[..., Findings]) -> None:
    """A save in a pause that may have been a night between two starts."""
    lines = [f"{stamped(20.0 * n)} INFO step: {100 * n}" for n in range(1, 30)]
    lines += [f"{stamped(590.0)} INFO The model has been saved as a.pt"]
    lines += [f"{stamped(30_000 + 20.0 * n)} INFO step: {100 * n}" for n in range(30, 60)]
    first = explain(lines).findings[0]
    assert (first.cause, first.confidence) == (Cause.CHECKPOINT, Confidence.LIKELY)


def test_a_line_that_only_begins_the_next_one_belongs_to_it(explain: Callable[..., Findings]) -> None:
    """A logger whose message begins with a line break."""
    lines = []
    for step in range(100, 3001, 100):
        lines += [f"{stamped(15.0 * step / 100)} - INFO: ", f"Epoch [1/9], Step [{step}/4000], Loss: 0.1"]
    assert explain(lines).figures["step_typical_s"] == pytest.approx(0.15)


def test_days_may_stand_before_months(explain: Callable[..., Findings]) -> None:
    lines = [f"finished iteration {n} on process 0 [13/03 15:{n // 30:02d}:{2 * n % 60:02d}]" for n in range(1, 90)]
    assert explain(lines).figures["step_typical_s"] == pytest.approx(2.0)


def test_samples_a_second_on_several_devices_tell_no_step_time(explain: Callable[..., Findings]) -> None:
    """The batch may be that of each device; the time of an epoch is told."""
    lines = ["Namespace(batch_size=256, num_gpus=8)"]
    for epoch in range(9):
        lines += [f"Epoch[{epoch}] Batch [{n}]\tSpeed: 4000.0 samples/sec\taccuracy=0.5" for n in range(49, 600, 50)]
        lines += [f"[Epoch {epoch}] speed: 4000 samples/sec\ttime cost: 320.5"]
    found = explain(lines)
    assert any("lines of epochs" in fact.en for fact in found.facts)
    assert found.figures["step_typical_s"] == pytest.approx(320.5)


def test_steps_behind_the_last_line_of_an_epoch_are_no_slow_start(explain: Callable[..., Findings]) -> None:
    """Two lines an epoch of 150 steps, 0.6 of 1.0 s waiting in each, and an evaluation between two epochs."""
    lines, at_s = [], 0.0
    for epoch in range(1, 20):
        for step in (0, 100):
            at_s += 100.0 if step else 54.0
            cost, wait = (4.0, 3.6) if step == 0 else (1.9, 1.5) if epoch % 2 else (0.7, 0.3)
            lines.append(
                f"[{stamped(at_s)}] epoch:[ {epoch}/20 ] train step:{step} loss: 3.1 batch_cost: {cost:.3f} sec, "
                f"reader_cost: {wait:.3f} sec, ips: 95.7 instance/sec."
            )
        at_s += 40.0
        lines.append(f"[{stamped(at_s)}] END epoch:{epoch} val loss_avg: 3.2 top1_avg: 0.2")
    found = explain(lines)
    assert found.findings[0].cause is Cause.LOADER_THROUGHPUT
    assert found.figures["wait_share"] == pytest.approx(0.65, abs=0.1)
    starts = [one for one in found.findings if one.cause is Cause.EPOCH_START]
    assert all(one.confidence is not Confidence.CERTAIN for one in starts)


def test_steps_that_print_their_own_long_time_count_once_with_their_waits(tmp_path: Path) -> None:
    """Each fifth line is of a step with 5 s of waiting, among a hundred of 0.1 s: 27 % of the time is waiting."""
    log = tmp_path / "train.log"
    with log.open("w") as file:
        for line in range(1, 101):
            took_s, wait_s = (5.1, 5.0) if line % 5 == 0 else (0.1 + 0.002 * (line % 3 - 1), 0.02)
            file.write(f"Epoch: [0] [{100 * line}/10000] time: {took_s:.4f} s data: {wait_s:.4f} s loss: 2.3\n")
    found = explain_logs([str(log)])
    assert sum(one.share for one in found.findings) == pytest.approx(0.27, abs=0.04)


def test_slow_batches_that_are_told_count_beside_lines_of_an_evaluation(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    with log.open("w") as file:
        for number in range(20, 80):
            at = f"2025-11-15 10:{number // 2:02}:{30 * (number % 2):02},000"
            file.write(f"{at} WARNING: [SLOW BATCH #{50 * number}] 20.69s - prefetch\n")
        for number in range(1, 50):
            file.write(f"2025-11-15 11:00:{number:02},000 Test: [{number}/50] Time 0.500 s Data 0.400 s Loss 1.2\n")
    found = explain_logs([str(log)])
    assert found.findings[0].cause is Cause.BATCH_LOCKSTEP
