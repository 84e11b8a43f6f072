"""Whether the device or the host is the limit of a step, and what the host lost its time to."""

import pytest

from headrace.causes.recorded import explain_processes
from headrace.model import Cause, EventKind, Findings, Verdict
from headrace.signals.system import GpuSample, SystemSample

from .test_recorded import IN_PROCESS, Tape
from .test_surroundings import machine, process

_S = 1_000_000_000
_CORES = 8


def train(
    *,
    busy: float | None,
    wait: float = 0.02,
    forward: float = 0.4,
    backward: float = 0.3,
    sync: float = 0.0,
    delay: float = 0.0,
    on_core: float = 0.6,
    idle_cores: float = 6.0,
    copies: bool = True,
    has_loader: bool = True,
) -> Findings:
    """Play twelve seconds of steps of 50 ms, parts of them in shares; for the first three the device warms up."""
    tape = Tape(100, "trainer", names={1: "Train#1"}, loaders={1: IN_PROCESS} if has_loader else {})
    step_s, now = 0.05, 1.0
    if has_loader:
        tape.add(EventKind.EPOCH, now, 0.001, 0, 1)
    now = 4.0
    for number in range(240):
        at = now
        for kind, share in (
            (EventKind.WAIT, wait),
            (EventKind.FORWARD, forward),
            (EventKind.BACKWARD, backward),
            (EventKind.OPTIMIZER, 0.02),
            (EventKind.SYNC, sync),
        ):
            if share and (has_loader or kind is not EventKind.WAIT):
                tape.add(kind, at, share * step_s, number if kind is EventKind.WAIT else 0, 1)
                at += share * step_s
        if copies:
            tape.add(EventKind.H2D, at, 1e-5, 1000)
        now += step_s
    if has_loader:
        tape.add(EventKind.WAIT, now, 0.001, -1, 1)

    def look(at_s: int) -> SystemSample:
        worked_s = max(0, at_s - 4)
        known = dict.fromkeys(GpuSample._fields, None) | {"number": 0, "utilisation": busy if at_s > 4 else 0.0}
        own = process(100, 1.0 * worked_s, run_delay_s=delay * worked_s, main_cpu_s=on_core * worked_s)
        around = machine(cpu_idle_s=round(idle_cores * at_s * 1000))._replace(cpu_idle_s=idle_cores * at_s)
        return SystemSample(at_ns=at_s * _S, machine=around, processes=(own,), gpus=(GpuSample(**known),))

    return explain_processes(
        [tape.process()],
        start_ns=0,
        end_ns=round((now + 0.5) * _S),
        cores=_CORES,
        system=[look(at_s) for at_s in range(17)],
    )


def test_a_device_that_is_busy_is_the_limit_whether_or_not_the_host_waits_for_it() -> None:
    assert train(busy=0.99).verdict is Verdict.COMPUTE_BOUND  # the host runs ahead, and is held up in a launch
    assert train(busy=0.92, forward=0.3, sync=0.2).verdict is Verdict.COMPUTE_BOUND


@pytest.mark.parametrize(
    ("told", "fix"),
    [
        ({"idle_cores": 0.3, "delay": 0.2}, "fewer workers"),
        ({"on_core": 0.2}, "headrace.DataLoader(…, device"),  # asleep for half of the time outside of backward
        ({"sync": 0.2}, ".item()"),
        ({"forward": 0.1, "backward": 0.2, "on_core": 0.75}, "headrace.phase"),
        ({"forward": 0.5, "backward": 0.4}, "torch.compile"),
    ],
)
def test_a_device_that_waits_for_the_host_is_host_bound_with_what_the_host_lost(
    told: dict[str, float], fix: str
) -> None:
    found = train(busy=0.6, **told)  # type: ignore[arg-type]
    assert found.verdict is Verdict.HOST_BOUND
    (finding,) = found.findings
    assert finding.cause is Cause.HOST_BOUND
    assert finding.share == pytest.approx(0.38, abs=0.02)  # neither busy nor waiting for data; no warming up in it
    assert fix in finding.fix[0].en
    assert "--replay" in finding.measure[0].en


def test_waiting_for_data_is_not_the_host_s() -> None:
    assert Cause.HOST_BOUND not in {one.cause for one in train(busy=0.6, wait=0.35, forward=0.2).findings}


def test_nothing_is_concluded_where_nobody_tells_of_the_device_or_it_is_not_used() -> None:
    assert train(busy=None).verdict is Verdict.COMPUTE_BOUND
    assert train(busy=0.0, copies=False).verdict is Verdict.COMPUTE_BOUND


def test_data_made_by_the_loop_itself_is_its_python_and_no_lock() -> None:
    (finding,) = train(busy=0.3, forward=0.1, backward=0.2, on_core=0.2, has_loader=False).findings
    assert finding.figures["python_share"] > 0.5
    assert "locked_share" not in finding.figures
    assert "headrace.phase" in finding.fix[0].en
