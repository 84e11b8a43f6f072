"""Every error that a user may catch is `headrace.NAME`, says so in tracebacks, and travels between processes."""

import pickle
import subprocess
import sys

import pytest

import headrace


@pytest.mark.parametrize("name", headrace.errors.__all__)
def test_an_error_is_a_name_of_headrace(name: str) -> None:
    error = getattr(headrace, name)
    assert issubclass(error, headrace.HeadraceError)
    assert f"{error.__module__}.{error.__qualname__}" == f"headrace.{name}"
    assert name in headrace.__all__
    back = pickle.loads(pickle.dumps(error("what happened", next_step="what to do", limit="3")))
    assert (type(back), back.what, back.next_step, back.evidence) == (
        error,
        "what happened",
        "what to do",
        {"limit": "3"},
    )


def test_a_traceback_names_it_as_users_catch_it() -> None:
    script = "import headrace\nraise headrace.errors.WorkerLost('worker 3 was killed')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "headrace.WorkerLost: worker 3 was killed"
