"""What is concluded from a log, and what is not: the traps."""

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.causes import explain_logs
from headrace.errors import UnusableInput
from headrace.model import Cause, Confidence, Findings, Severity, Verdict

SLOW_BATCHES = """\
- batch_size: 24
- num_workers: 32
- prefetch_factor: 12
2025-11-15 19:26:27,537 WARNING: [SLOW BATCH #2950] 20.69s - prefetch_buffer_exhausted (after 31 fast batches)
2025-11-15 19:26:50,852 WARNING: [SLOW BATCH #2982] 19.15s - prefetch_buffer_exhausted (after 31 fast batches)
2025-11-15 19:27:20,301 WARNING: [SLOW BATCH #3014] 25.26s - prefetch_buffer_exhausted (after 31 fast batches)
2025-11-15 19:27:44,354 WARNING: [SLOW BATCH #3046] 19.87s - prefetch_buffer_exhausted (after 31 fast batches)
2025-11-15 19:28:08,448 WARNING: [SLOW BATCH #3078] 19.91s - prefetch_buffer_exhausted (after 31 fast batches)
2025-11-15 19:28:59,601 WARNING: [SLOW BATCH #3142] 19.04s - prefetch_buffer_exhausted (after 31 fast batches)
2025-11-15 19:28:36,381 WARNING: [SLOW BATCH #3110] 21.87s - very_slow_io (possibly disk bottleneck)
2025-11-15 19:29:25,393 WARNING: [SLOW BATCH #3174] 20.66s - very_slow_io (possibly disk bottleneck)
2025-11-15 19:29:50,340 WARNING: [SLOW BATCH #3206] 19.63s - very_slow_io (possibly disk bottleneck)
2025-11-15 19:30:16,170 WARNING: [SLOW BATCH #3238] 18.77s - very_slow_io (possibly disk bottleneck)
2025-11-15 19:30:43,012 WARNING: [SLOW BATCH #3270] 17.53s - very_slow_io (possibly disk bottleneck)
2025-11-15 19:31:07,476 WARNING: [SLOW BATCH #3302] 14.08s - very_slow_io (possibly disk bottleneck)
2025-11-15 19:26:06,847 INFO: [DATA LOAD] Recent 50 batches: avg=449.1ms, min=0.4ms, max=22409.4ms, std=3137.2ms
Epoch 2:  65%|██████▍   | 2949/4570 [34:14<04:19,  6.25it/s, tb(ms)=160]
Epoch 2:  65%|██████▍   | 2950/4570 [34:15<27:54,  1.03s/it, total=0.4355, tb(ms)=161, avg(ms)=696, data=576, bwd=119]
"""


@pytest.fixture
def explain(tmp_path: Path) -> Callable[..., Findings]:
    def run(*texts: str) -> Findings:
        paths = []
        for number, text in enumerate(texts):
            path = tmp_path / f"{number}.log"
            path.write_text(text, encoding="utf-8")
            paths.append(str(path))
        return explain_logs(paths)

    return run


def steps(
    slow: Callable[[int], float], *, count: int = 300, before: Callable[[int], str] = lambda _: "", head: str = ""
) -> str:
    """Return a log of steps of 0.2 s; `slow` adds to some, `before` puts a line before some."""
    lines = [head] if head else []
    for step in range(1, count + 1):
        if said := before(step):
            lines.append(said)
        lines.append(f"step {step} loss 0.5 time {0.2 + 0.001 * (step % 7) + slow(step):.3f}s")
    return "\n".join(lines) + "\n"


def every(period: int, seconds: float, *, but_first: bool = True) -> Callable[[int], float]:
    return lambda step: seconds if step % period == 0 and (step > period or not but_first) else 0.0


def test_the_report_of_a_user_is_one_phenomenon(explain: Callable[..., Findings]) -> None:
    found = explain(SLOW_BATCHES)
    first = found.findings[0]
    assert found.verdict is Verdict.DATA_BOUND
    assert (first.cause, first.severity, len(found.findings)) == (Cause.BATCH_LOCKSTEP, Severity.HIGH, 1)
    assert first.figures["period_steps"] == 32
    assert first.figures["slow_steps"] == 12
    assert first.figures["supply_per_s"] == pytest.approx(1.257, abs=0.001)
    assert first.figures["demand_per_s"] == 6.25
    assert "all 12 slow batches" in first.evidence[0].en
    assert any("1.26 batches/s supplied against 6.25" in text.en for text in first.evidence)
    assert any("prefetch_factor" in text.en for text in first.futile)
    assert "cannot decide" in found.limits[0].en
    assert "busy_share" in found.measure[0].en
    assert any("60.6 min" in text.en for text in found.facts)  # 4570 batches at 1.26/s, not the 75.5 of the report


@pytest.mark.parametrize(
    ("line", "verdict"), [("Evaluating the model", Verdict.ELSEWHERE), ("Saving checkpoint", Verdict.STUTTERING)]
)
def test_an_evaluation_is_no_stutter(line: str, verdict: Verdict, explain: Callable[..., Findings]) -> None:
    found = explain(steps(every(50, 20.0), before=lambda step: line if step % 50 == 0 else ""))
    assert (found.verdict, len(found.findings)) == (verdict, 1)


def test_a_pause_that_nothing_speaks_of_is_unknown_and_no_checkpoint(explain: Callable[..., Findings]) -> None:
    found = explain(steps(every(50, 5.0)))
    first = found.findings[0]
    assert first.cause is Cause.UNKNOWN
    assert first.figures["period_steps"] == 50
    assert first.measure
    assert not first.fix


def test_a_checkpoint_is_named_where_the_text_says_so(explain: Callable[..., Findings]) -> None:
    said = lambda step: "Saving checkpoint to out/model.pt" if step % 50 == 0 and step > 50 else ""  # noqa: E731
    first = explain(steps(every(50, 5.0), before=said)).findings[0]
    assert (first.cause, first.confidence) == (Cause.CHECKPOINT, Confidence.LIKELY)  # no time stamps around it


def test_a_checkpoint_beside_half_of_the_pauses_explains_none(explain: Callable[..., Findings]) -> None:
    said = lambda step: "Saving checkpoint to out/model.pt" if step % 50 == 0 else ""  # noqa: E731
    causes = [finding.cause for finding in explain(steps(every(25, 5.0), before=said, count=600)).findings]
    assert causes == [Cause.UNKNOWN]


def test_a_checkpoint_elsewhere_explains_nothing(explain: Callable[..., Findings]) -> None:
    said = lambda step: "Saving checkpoint to out/model.pt" if step % 50 == 20 else ""  # noqa: E731
    assert explain(steps(every(50, 5.0), before=said)).findings[0].cause is Cause.UNKNOWN


def test_the_settings_of_the_log_name_an_interval(explain: Callable[..., Findings]) -> None:
    first = explain(steps(every(50, 5.0), head="save_steps=50, lr=0.1")).findings[0]
    assert (first.cause, first.confidence) == (Cause.CHECKPOINT, Confidence.LIKELY)
    both = explain(steps(every(50, 5.0), head="save_steps=50, eval_steps=50")).findings[0]
    assert both.cause is Cause.UNKNOWN


def test_gradient_accumulation_is_no_stall(explain: Callable[..., Findings]) -> None:
    found = explain(steps(every(8, 0.6, but_first=False), head="gradient_accumulation_steps: 8"))
    assert found.findings == ()


@pytest.mark.parametrize("workers", [2, 3, 6, 8, 12, 16, 32])
def test_the_distance_of_the_workers_is_lock_step(workers: int, explain: Callable[..., Findings]) -> None:
    text = steps(every(workers, 2.0 * workers), count=20 * workers, head=f"num_workers={workers}")
    first = explain(text).findings[0]
    assert (first.cause, first.confidence) == (Cause.BATCH_LOCKSTEP, Confidence.LIKELY)
    assert first.figures["period_steps"] == workers


def test_another_distance_than_the_workers_is_not(explain: Callable[..., Findings]) -> None:
    assert explain(steps(every(8, 4.0), head="num_workers=12")).findings[0].cause is Cause.UNKNOWN


def test_a_lasting_slow_down_is_unknown(explain: Callable[..., Findings]) -> None:
    found = explain(steps(lambda step: 0.3 if step > 150 else 0.0))
    assert [finding.cause for finding in found.findings] == [Cause.UNKNOWN]
    assert "from step 151 on" in found.findings[0].evidence[0].en


def test_steady_steps_have_no_findings_and_no_verdict_without_waits(explain: Callable[..., Findings]) -> None:
    found = explain(steps(lambda _: 0.0))
    assert (found.findings, found.verdict) == ((), Verdict.UNKNOWN)
    assert found.limits
    told = "".join(f"step {step} time 0.200s data_time 0.002s\n" for step in range(1, 80))
    assert explain(told).verdict is Verdict.COMPUTE_BOUND


def test_stdout_and_stderr_of_slurm_are_one_run(explain: Callable[..., Findings]) -> None:
    """The bar is in one file, the words are in the other; they meet at the step that the words name."""
    now, bars = 0.0, []
    for step in range(1, 241):
        now += 0.4 + (12.0 if step % 40 == 1 and step > 40 else 0.0)
        minutes, seconds = divmod(int(now), 60)
        bars.append(f"\rtrain: {step // 3:3d}%|███  | {step}/240 [{minutes:02d}:{seconds:02d}<01:00, 2.50it/s]")
    words = "".join(f"Saving model checkpoint to out/checkpoint-{step}\n" for step in range(40, 240, 40))
    assert explain("".join(bars)).findings[0].cause is Cause.UNKNOWN
    assert explain("".join(bars), words).findings[0].cause is Cause.CHECKPOINT


def test_a_message_behind_the_last_step_ended_the_run(explain: Callable[..., Findings]) -> None:
    death = "RuntimeError: DataLoader worker (pid 2811) is killed by signal: Killed. \n"
    found = explain(steps(lambda _: 0.0) + death)
    assert found.findings[0].severity is Severity.FATAL
    assert found.findings[0].share == 1
    survived = explain(steps(lambda _: 0.0, count=40) + death + steps(lambda _: 0.0))
    assert survived.findings[0].share == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 40, "not text"),
        (b"the quick brown fox\njumps over the lazy dog\n" * 20, "no line tells of training steps"),
        ("今天天气不错。\n".encode() * 50, "no line tells of training steps"),
    ],
)
def test_what_is_no_log_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(content)
    with pytest.raises(UnusableInput, match=said):
        explain_logs([str(path)])
