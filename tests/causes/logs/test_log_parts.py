"""The pieces of reading a log: lines, times, bars, periods, shapes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.causes.logs.evidence import undo_smoothing
from headrace.causes.logs.fields import read_marker, read_plan, split_numbers
from headrace.causes.logs.lines import LineCutter, Stamps
from headrace.causes.logs.reader import LogReader, read_bar
from headrace.causes.logs.series import bar_times
from headrace.causes.steps.periods import find_period, find_rhythm


@given(st.text("ab 1\r\n\x1b[m进", max_size=200), st.lists(st.integers(1, 20), min_size=1))
def test_lines_do_not_depend_on_where_the_log_is_cut(text: str, sizes: list[int]) -> None:
    raw = text.encode()
    whole = LineCutter()
    expected = whole.cut(raw) + whole.rest()
    pieces, got, at, turn = LineCutter(), [], 0, 0
    while at < len(raw):
        size = sizes[turn % len(sizes)]
        got += pieces.cut(raw[at : at + size])
        at, turn = at + size, turn + 1
    got += pieces.rest()
    if "\x1b" not in text:  # an escape that is cut in two is one all the same, but only within a line
        assert got == expected
    assert [number for number, _ in got] == sorted(number for number, _ in got)


@pytest.mark.parametrize(
    ("first", "second", "seconds"),
    [
        ("2025-11-15 19:26:27,537 INFO x", "2025-11-15 19:26:50,852 INFO x", 23.315),
        ("2025-11-15T23:59:59.500Z x", "2025-11-16T00:00:01.000Z x", 1.5),
        ("11/15 23:59:59 - mmengine - INFO - x", "11/16 00:00:01 - mmengine - INFO - x", 2.0),
        ("11/15/2026 11:15:28 - INFO - x", "11/15/2026 11:16:28 - INFO - x", 60.0),
        ("[23:59:58.000] x", "[00:00:01.250] x", 3.25),
        ("I1115 19:26:27.537000 12 train.py:3] x", "I1115 19:26:28.037000 12 train.py:3] x", 0.5),
        ("Nov 15 19:26:27 node kernel: x", "Nov 15 19:27:27 node kernel: x", 60.0),
        ("2025年11月15日 19:26:27 x", "2025年11月15日 19:26:29 x", 2.0),
        ("1763234787.25 x", "1763234788.50 x", 1.25),
    ],
)
def test_time_stamps_of_many_loggers(first: str, second: str, seconds: float) -> None:
    stamps = Stamps()
    begin = stamps.read(first)
    assert stamps.read(second) - begin == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("line", "step", "took_s", "wait_s"),
    [
        ("step 12 time 0.203s loss 0.52", 12, 0.203, None),
        ("Iteration 12: 203.1 ms/iter, loss=0.52", 12, None, None),
        ("{'step': 12, 'loss': 0.52, 'step_time': 0.2031}", 12, 0.2031, None),
        ("Iter(train) [ 50/1000]  time: 0.0629  data_time: 0.0019  loss: 0.7", 50, 0.0629, 0.0019),
        ("Epoch [1][50/1000]\tlr: 1e-2, time: 0.512, data_time: 0.210, memory: 8123", 50, 0.512, 0.21),
        ("Epoch: [3][ 10/5005]\tTime  0.300 ( 0.400)\tData  0.012 ( 0.020)", 10, 0.3, 0.012),
        ("Epoch: [0]  [  10/5005]  eta: 1:00:00  time: 0.3500  data: 0.0300  max mem: 100", 10, 0.35, 0.03),
        ("iteration 7/ 300 | elapsed time per iteration (ms): 203.1 | global batch size: 16", 7, 0.2031, None),
        ("第 12 步 损失 0.5 耗时 0.203 秒 数据加载耗时 0.001 秒", 12, 0.203, 0.001),
        ("迭代 12/300 耗时=203ms 等待数据时间=1ms", 12, 0.203, 0.001),
    ],
)
def test_step_and_times_in_many_spellings(line: str, step: int, took_s: float | None, wait_s: float | None) -> None:
    plan = read_plan(line)
    told = plan.read(split_numbers(line)[1])
    assert (told.step, plan.is_training) == (step, True)
    if took_s is not None:
        assert told.took_s == pytest.approx(took_s)
    if wait_s is not None:
        assert told.wait_s == pytest.approx(wait_s)


@given(st.integers(1, 10**6), st.floats(0.001, 99), st.floats(0.001, 9))
def test_a_line_read_by_its_places_says_the_same(step: int, took: float, wait: float) -> None:
    """The second line of a shape is read by the places that the first one taught."""
    reader = LogReader()
    lines = [f"2025-11-15 19:26:2{k} epoch 1 step {n} time {t:.3f}s data_time {w:.3f}s" for k, (n, t, w) in enumerate(
        [(5, 0.25, 0.001), (step, took, wait)])]  # fmt: skip
    reader.feed(list(enumerate(lines, start=1)))
    store = reader.stores["timed+", "-", ""]
    assert store.column("step")[1] == step
    assert store.column("took_s")[1] == pytest.approx(round(took, 3), abs=1e-9)
    assert store.column("wait_s")[1] == pytest.approx(round(wait, 3), abs=1e-9)


@given(st.integers(2, 200), st.integers(0, 500), st.lists(st.integers(1, 3), min_size=8, max_size=30))
def test_equal_distances_are_found_also_with_some_left_out(period: int, start: int, skips: list[int]) -> None:
    steps = [start]
    for skip in [1, 1, 1, *skips]:
        steps.append(steps[-1] + skip * period)
    if skips.count(1) + 3 >= 0.4 * (len(skips) + 3):
        found = find_period([steps])
        assert found is not None
        assert found.steps % period == 0


@given(st.integers(0, 10**6))
def test_random_distances_have_no_period(seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps = np.cumsum(rng.integers(20, 400, size=8))
    found = find_period([steps.tolist()])
    assert found is None or found.steps < 4  # eight even distances happen once in 256 times


def test_a_rhythm_that_wanders_is_found() -> None:
    rng = np.random.default_rng(3)
    waits = np.zeros(240)
    slot = 0
    for first in range(0, 240, 12):
        slot = (slot + int(rng.random() < 0.15)) % 12
        waits[first + slot] = 2.0 + rng.random()
    found = find_rhythm(waits)
    assert found is not None
    assert found.steps == 12


@given(st.lists(st.floats(0.15, 3.0), min_size=40, max_size=80), st.booleans())
def test_the_clock_of_a_bar_is_finer_than_its_seconds(seconds: list[float], from_start: bool) -> None:
    """From whole seconds and two decimals of a rate, the time of each step comes back to a few hundredths."""
    shown, rates, true, now = [], [], [], 0.0
    steps_avg = time_avg = 0.0
    for number, took in enumerate(seconds, start=1):
        now += took
        steps_avg, time_avg = 0.3 + 0.7 * steps_avg, 0.3 * took + 0.7 * time_avg
        rate = number / now if from_start else steps_avg / time_avg
        text = f"{rate:.2f}" if rate >= 1 else f"{1 / rate:.2f}"
        rates.append(1 / float(text) if rate >= 1 else float(text))
        shown.append(float(math.floor(now)))
        true.append(now)
    at_s, _ = bar_times(np.arange(1.0, len(seconds) + 1), np.array(shown), np.array(rates))
    got, wanted = np.diff(at_s), np.diff(true)
    tolerance = 0.12 if not from_start else 0.6
    assert float(np.median(np.abs(got - wanted))) < tolerance
    assert float(np.abs(at_s - np.array(true)).max()) < 1.1


@given(st.lists(st.floats(0.05, 3.0), min_size=30, max_size=120))
def test_smoothing_over_ten_steps_is_undone(plain: list[float]) -> None:
    means = np.array([round(float(np.mean(plain[max(0, k - 9) : k + 1])), 4) for k in range(len(plain))])
    undone, _ = undo_smoothing(means, means * np.nan, np.zeros(len(plain), dtype=bool))
    assert np.allclose(undone, plain, atol=0.02)


def test_a_logger_that_writes_behind_a_bar_is_heard() -> None:
    reader = LogReader()
    reader.feed(
        [(1, " 20%|██   | 30/150 [00:03<00:12,  9.60it/s]11/15/2026 11:40:00 - INFO - step 30: eval_loss 0.69")]
    )
    assert [marker.doing.value for marker in reader.markers] == ["evaluation"]


@pytest.mark.parametrize(
    ("line", "doing"),
    [
        ("模型已保存", "checkpoint"),
        ("检查点保存完成", "checkpoint"),
        ("checkpoint已保存", "checkpoint"),
        ("权重写入 /data/out/last", "checkpoint"),
        (f"Saved to /data/{'experiment_' * 8}/epoch_3.pth", "checkpoint"),
        ("Writing TensorBoard logs to /exp/model_a/tb", "logging"),
        ("Writing metrics to model_dir/metrics.json", "logging"),
        ("写入日志到 model/tb", "logging"),
        ("Writing predictions to model_out.json", None),
    ],
)
def test_a_save_is_told_from_what_else_is_written(line: str, doing: str | None) -> None:
    marker = read_marker(line, line=1)
    assert (marker and marker.doing.value) == doing


def test_a_line_that_is_the_first_behind_midnight_adds_one_day_only_once() -> None:
    reader, begins_s = LogReader(), 86400 - 10
    clocks = [
        f"{s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}" for s in (k % 86400 for k in range(begins_s, begins_s + 30))
    ]
    lines = [f"{clock} INFO step {number}/1000 loss 0.5" for number, clock in enumerate(clocks, start=1)]
    lines[10] = f"{clocks[10]} INFO Saving checkpoint to out/step10.pt"
    reader.feed(list(enumerate(lines, start=1)))
    (store,), (marker,) = reader.stores.values(), reader.markers
    assert store.column("at_s")[-1] - store.column("at_s")[0] == 29
    assert marker.at_s - marker.since_s == 1


@pytest.mark.parametrize(
    ("line", "kind", "step", "elapsed_s"),
    [
        ("Epoch 2:  65%|██▍ | 2949/4570 [34:14<04:19,  6.25it/s, tb(ms)=160]", "train", 2949, 2054),
        ("Validation DataLoader 0:  20%|██  | 1/5 [00:01<00:04,  1.00s/it]", "evaluate", 1, 1),
        ("  1/1  0G  0.001  0.07  0.0009  4  32: 27% ━━━╸──────── 41/150 13.2it/s 3.1s<8.3s", "train", 41, 3.1),
        (
            "   Class  Images  Instances  Box(P  R  mAP50  mAP50-95): 50% ━━━━━━────── 1/2 13.5s/it 4.0s<13.5s",
            "evaluate",
            1,
            4,
        ),
        ("Downloading: 5%|▌ | 10/200 [00:05<01:35, 1.99MB/s]", "other", 10, 5),
        ("150it [00:09, 15.3it/s]", "train", 150, 9),
        ("Epoch 0/0  ━━━━━━━━ 150/150 0:00:09 • 0:00:00 15.68it/s", "train", 150, 9),
    ],
)
def test_bars_of_many_packages(line: str, kind: str, step: int, elapsed_s: float) -> None:
    bar = read_bar(line)
    assert bar is not None
    assert (bar.kind, bar.told.step, bar.told.elapsed_s) == (kind, step, elapsed_s)


def test_a_bar_that_scales_its_unit_is_read() -> None:
    bar = read_bar("train:  12%|█▏        | 1.20k/10.0k [00:01<00:07, 1.25kit/s]")
    assert bar is not None
    assert (bar.told.step, bar.told.of, bar.told.rate_s) == (1200, 10000, 0.0008)
    odd = read_bar("train:  12%|█▏        | 3/10 [00:01<00:07, 1.25?it/s]")
    assert odd is None or not odd.told.rate_s > 0


def test_milliseconds_of_one_time_say_nothing_of_those_before_it() -> None:
    def took(line: str) -> float:
        plan = read_plan(line)
        assert plan is not None
        return plan.read(split_numbers(line)[1]).took_s

    assert took("Step: 10/1000 | Step time: 0.850 | Data time: 0.020 | Forward (ms): 120.3") == pytest.approx(0.85)
    assert took("step 120 time: 1.25 comm (ms): 31.2") == pytest.approx(1.25)


@pytest.mark.parametrize("rate", ["12.5ms/it", "2.05Kit/s"])
def test_a_rate_with_a_small_letter_is_no_number_of_thousands(rate: str) -> None:
    read_bar(f"5/10 [00:09<01:21, {rate}]")
