"""Loaders under faults: over backends, start methods, numbers of workers, batch sizes and collations.

A draw is a function of its number, so a failure is repeated by its name. The long mode (`-m slow`) draws many more, at
least HEADRACE_CHAOS_FAULTS faults (1,000 by default), one draw after the other; `benchmarks/chaos_long.py` runs several
at a time. Whatever hangs is ended by the referee, with stacks.
"""

import os
from collections import Counter
from dataclasses import replace

import pytest

from headrace.doctor.chaos import ChaosReport, ChaosSettings, run_chaos
from headrace.model import FaultKind

from .draws import draw_settings

_QUICK_DRAWS = 4
_QUICK_FAULTS = 9

pytestmark = pytest.mark.alone  # what others leave in /dev/shm for a moment would be laid to the loader's charge


def check(report: ChaosReport) -> None:
    told = [(v, f.stacks) for f, v in zip(report.rounds, report.verdicts, strict=True) if not v.is_clean]
    assert report.is_clean, f"{report.settings}\n{report.left}\n" + "\n".join(map(str, told))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("number", range(_QUICK_DRAWS))
def test_nothing_is_lost_repeated_or_left_behind(number: int) -> None:
    settings = draw_settings(number, num_faults=_QUICK_FAULTS)
    report = run_chaos(replace(settings, start_method="fork", timeout_s=1.2))
    check(report)
    assert report.totals()["faults"] >= _QUICK_FAULTS


@pytest.mark.timeout(120)
@pytest.mark.parametrize("start_method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_that_start_anew_are_replaced_as_well(start_method: str) -> None:
    kinds = (FaultKind.KILL, FaultKind.EXCEPTION, FaultKind.SHM_FULL, FaultKind.FD_LIMIT)
    check(
        run_chaos(
            ChaosSettings(
                target="tests.doctor.chaos.datasets:general",
                kinds=kinds,
                num_faults=5,
                num_workers=2,
                start_method=start_method,
                most_samples=200,
                timeout_s=20,
            )
        )
    )


def test_bad_samples_of_the_users_are_named() -> None:
    settings = ChaosSettings(
        target="tests.doctor.chaos.datasets:some_bad",
        kinds=(FaultKind.EXIT,),
        num_faults=3,
        most_samples=1600,
        num_workers=2,
    )
    report = run_chaos(settings)
    check(report)
    assert sorted(one.index for one in report.own_failures) == [7, 407, 807, 1207]
    assert {one.exception for one in report.own_failures} == {"ValueError"}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_thousand_faults(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = int(os.environ.get("HEADRACE_CHAOS_FAULTS", "1000"))
    first = int(os.environ.get("HEADRACE_CHAOS_FIRST", "100"))
    totals: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    number = first
    failed = []
    while totals["faults"] < wanted:
        report = run_chaos(draw_settings(number, num_faults=36))
        totals.update(report.totals())
        kinds.update({kind.value: figures.injected for kind, figures in report.kinds().items()})
        if not report.is_clean:
            failed.append((number, report.settings, [v for v in report.verdicts if not v.is_clean]))
        with capsys.disabled():
            print(f"draw {number}: {report.elapsed_s:.1f} s, {totals['faults']} faults, clean={report.is_clean}")
        number += 1
    with capsys.disabled():
        print(dict(totals), dict(kinds))
    assert not failed, failed
