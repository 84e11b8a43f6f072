"""A script under `headrace run` beside the same script under plain Python: what it prints, and how it ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .test_cli import HEADRACE, _environment

_DEADLINE_S = 100

# Each prints what it can see of how it was started. None says anything of time.
ABOUT = """
import os, sys
print(__name__, __file__, __package__, __spec__ and __spec__.name, __doc__)
print(sys.argv, sys.path, sys.flags, sys.orig_argv[1:], sys.executable)
print(sorted(name for name in sys.modules if name.split(".")[0] in {"headrace", "numpy", "typing", "torch"}))
print(sys.stdin.read(), os.getcwd(), os.getppid() != os.getpid())
"""
SPAWNED = """
import multiprocessing, os, sys
def child(queue):
    queue.put((__name__, multiprocessing.current_process().name, sys.argv[1:], os.environ.get("OWN")))
if __name__ == "__main__":
    os.environ["OWN"] = "passed on"
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,), name=method)
        process.start()
        print(method, queue.get(), process.exitcode if process.join() is None else None)
"""
ENDS = """
import atexit, sys
atexit.register(print, "at exit", flush=True)
{end}
"""
CHILDREN = """
import subprocess, sys
for words in (["-c", "import sys; print(sys.path, sys.argv)"], ["-I", "-c", "import sys; print(sys.path)"],
              ["-E", "-c", "print('E')"], ["-S", "-c", "print('S')"], ["-m", "platform"]):
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    print(words[0], done.returncode, done.stdout, done.stderr)
done = subprocess.run([sys.executable, "-c", "import sys; print(sys.path)"], env={}, capture_output=True, text=True)
print(done.stdout, done.stderr)
"""
STREAMS = """
import sys
sys.stdout.buffer.write(bytes(range(256)))
sys.stdout.flush()
sys.stderr.buffer.write(b"raw \\xff bytes\\n")
print("no newline at the end", end="")
"""
IMPORTS = """
import importlib.util, inspect, sys
import own_module, json.decoder
for module in (own_module, json.decoder):
    spec = module.__spec__
    print(module.__name__, type(spec.loader).__name__, module.__loader__ is spec.loader, inspect.getsource(module)[:20])
print(importlib.util.find_spec("no_such_module"), importlib.util.find_spec("own_module").origin)
try:
    import no_such_module
except ModuleNotFoundError as error:
    print(repr(error), error.name)
"""


def both(
    folder: Path, *words: str, stdin: str = "", env: dict[str, str] | None = None
) -> "list[subprocess.CompletedProcess[bytes]]":
    """Run a command line of Python's, plain and under `headrace run`."""
    ours = words if words[0] in {"-m", "script.py"} else ("--", sys.executable, *words)
    return [
        subprocess.run(
            command, capture_output=True, input=stdin.encode(), cwd=folder, env=_environment(env), timeout=_DEADLINE_S
        )
        for command in (
            [sys.executable, *words],
            [HEADRACE, "-q", "run", "--out", str(folder / "recorded"), *ours],
        )
    ]


def assert_alike(plain: "subprocess.CompletedProcess[bytes]", ours: "subprocess.CompletedProcess[bytes]") -> None:
    assert ours.stdout == plain.stdout
    assert ours.returncode == plain.returncode
    assert ours.stderr.startswith(plain.stderr)
    assert ours.stderr[len(plain.stderr) :].startswith(b"headrace: ")  # what follows is ours


def write(folder: Path, text: str, name: str = "script.py") -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


ODD_ERRORS = """
import torch.utils.data


class Odd(Exception):
    def __str__(self):
        raise ValueError


def fail():
    one, other = Odd(), Odd()
    one.__cause__, other.__cause__ = other, one
    raise one


class Rows:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        fail()


for num_workers in (0, 1):
    try:
        list(torch.utils.data.DataLoader(Rows(), num_workers=num_workers))
    except Odd:
        print("odd")
fail()
"""


def slow(*values: object, name: str | None = None) -> object:
    """Return a case that says nothing new of most changes: half a second each adds up."""
    return pytest.param(*values, marks=pytest.mark.slow, id=name)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(ABOUT, id="about"),
        pytest.param(SPAWNED, id="spawn"),
        pytest.param(CHILDREN, id="children"),
        slow(STREAMS, name="streams"),
        pytest.param(IMPORTS, id="imports"),
        slow(ENDS.format(end="sys.exit('a word')"), name="word"),
        slow(ENDS.format(end="raise SystemExit"), name="exit"),
        pytest.param(ENDS.format(end="1 / 0"), id="raise"),
        pytest.param(ODD_ERRORS, id="odd errors"),
        slow(ENDS.format(end="import os; os.abort()"), name="abort"),
        pytest.param(ENDS.format(end="import os; os.kill(os.getpid(), 9)"), id="kill"),
        slow(ENDS.format(end="sys.exit(300)"), name="300"),
        slow("def broken(:", name="syntax"),
    ],
)
def test_a_script_does_what_it_does(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    write(tmp_path, "VALUE = 1  # a module of the script's own\n", "own_module.py")
    assert_alike(*both(tmp_path, "script.py", "--lr", "0.1", "-m", "--", "--json", stdin="to stdin"))


@pytest.mark.parametrize(
    "words",
    [
        ("-m", "package", "a", "--out", "b"),
        slow(("-m", "package.part", "-m", "x")),
        slow(("-c", "import sys; print(sys.argv, sys.path)", "x")),
        ("-u", "-X", "utf8", "-W", "ignore", "package/part.py"),
        slow(("-P", "package/part.py")),
        slow(("-",)),
        slow(("package",)),
    ],
)
def test_however_python_is_called(tmp_path: Path, words: tuple[str, ...]) -> None:
    write(tmp_path, ABOUT, "package/__main__.py")
    write(tmp_path, ABOUT, "package/part.py")
    assert_alike(*both(tmp_path, *words, stdin="print('from stdin')" if words == ("-",) else "words"))


@pytest.mark.parametrize("path", [slow("own"), slow("own:"), ":own", slow("own::elsewhere"), slow(":")])
def test_a_python_path_with_empty_entries_means_the_working_directory(tmp_path: Path, path: str) -> None:
    write(
        tmp_path,
        "import sys\nprint([p for p in sys.path if not p.startswith(sys.prefix)])\nimport here",
        "in/script.py",
    )
    write(tmp_path, "print('found', __name__)", "here.py")
    write(tmp_path, "", "own/unused.py")
    before = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    plain, ours = both(tmp_path, "in/script.py", env={"PYTHONPATH": os.pathsep.join([*before, path])})
    assert (b"found here" in plain.stdout) == (path not in {"own"})
    assert (ours.stdout, ours.returncode) == (plain.stdout, plain.returncode)


@pytest.mark.slow
def test_what_a_python_that_ignores_us_runs_is_its_own(tmp_path: Path) -> None:
    write(tmp_path, "print('ran')")
    for flag in ("-I", "-E", "-S", "-Eu"):
        done = subprocess.run(
            [HEADRACE, "run", "--out", str(tmp_path / f"recorded{flag}"), "--", sys.executable, flag, "script.py"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=_environment(None),
            timeout=_DEADLINE_S,
        )
        assert (done.returncode, done.stdout) == (0, "ran\n")
        assert "undecided" in done.stderr
