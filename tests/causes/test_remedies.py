"""What helps against a cause: every room may ask, and asking loads no NumPy."""

import subprocess
import sys

import pytest

from headrace.causes import advice_on, bottleneck_fix
from headrace.model import Bottleneck, Cause


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_a_fix_or_a_measurement(cause: Cause) -> None:
    advice = advice_on(cause)
    assert advice.fix or advice.measure
    assert all(text.en and text.zh for text in (*advice.fix, *advice.futile, *advice.measure))


@pytest.mark.parametrize("bottleneck", Bottleneck)
def test_every_bottleneck_has_a_fix(bottleneck: Bottleneck) -> None:
    assert len(bottleneck_fix(bottleneck)) == 1


def test_asking_for_advice_loads_no_numpy() -> None:
    code = "import sys; from headrace.causes import advice_on; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
