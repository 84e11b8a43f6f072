"""`import headrace` and the quick commands load neither torch nor numpy."""

import subprocess
import sys

import pytest

import headrace

_HEAVY = ("torch", "numpy")


def _loaded_by(code: str) -> set[str]:
    """Return which heavy packages a fresh interpreter has loaded after running some code."""
    script = f"{code}\nimport sys\nprint('loaded:', *[name for name in {_HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split()[1:])


def test_the_check_can_fail() -> None:
    assert _loaded_by("import headrace; headrace.DataLoader") == {"torch", "numpy"}


@pytest.mark.parametrize(
    "code",
    [
        "import headrace",
        "import headrace; dir(headrace); headrace.__version__",
        "import headrace; headrace.HeadraceError; headrace.LoaderStats; headrace.SKIP; headrace.SampleFailure",
        "import headrace; list(headrace.monitor([1])); headrace.phase('checkpoint')",
        "from headrace.cli import main; assert main(['--help']) == 0",
        "from headrace.cli import main; assert main(['run', '--help']) == 0",
        "from headrace.cli import main; assert main(['--version']) == 0",
        "from headrace.cli import main; assert main(['demo', '--help']) == 0",
        "from headrace.cli import main; assert main(['demo', '--workers', 'many']) == 2",
        "from headrace.cli import main; assert main(['quarantine', '/dev/null']) == 0",
    ],
)
def test_loads_no_torch_and_no_numpy(code: str) -> None:
    assert _loaded_by(code) == set()


def test_public_names_are_there_and_listed() -> None:
    for name in headrace.__all__:
        assert getattr(headrace, name) is not None
        assert name in dir(headrace)


def test_a_lazy_name_is_the_one_of_its_home() -> None:
    from headrace.loader import DataLoader

    assert headrace.DataLoader is DataLoader


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Dataloader'"):
        _ = headrace.Dataloader  # type: ignore[attr-defined]
