"""The snippets of the documentation run, its links lead somewhere, and the examples work."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("changes/README.md")])
WITH_CODE = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]

# A page's snippets run as one script, at the top level, as one types them in; only `fork` allows that with workers.
_PREAMBLE = 'import multiprocessing\nmultiprocessing.set_start_method("fork")\n'


# Runs each script that it is told of in a process of its own, which need not import torch again.
_FORKING = """
import os, runpy, sys, torch
while script := sys.stdin.readline().strip():
    if os.fork() == 0:
        os.chdir(os.path.dirname(script))
        os.dup2(os.open("stderr", os.O_CREAT | os.O_WRONLY), 2)
        os.dup2(2, 1)
        sys.argv[:] = [script]
        runpy.run_path(script, run_name="__main__")
        break
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def run(script: Path) -> str:
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100, cwd=script.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def forking() -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, "-c", _FORKING]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_snippets_run(page: Path, tmp_path: Path, forking: "subprocess.Popen[str]") -> None:
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    script = tmp_path / "snippets.py"
    script.write_text(_PREAMBLE + "\n".join(blocks), encoding="utf-8")
    assert forking.stdin is not None
    assert forking.stdout is not None
    print(script, file=forking.stdin, flush=True)
    assert forking.stdout.readline() == "0\n", (tmp_path / "stderr").read_text()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        assert (page.parent / path).exists(), target
        if anchor and not path:
            headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            anchors = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert anchor in anchors, target


def test_the_example_gives_the_same_with_both_loaders() -> None:
    assert "the losses are the same" in run(ROOT / "examples" / "switch_from_torch.py")


def test_the_example_explains_its_log() -> None:
    assert "checkpoint: 29% of the time" in run(ROOT / "examples" / "explain_a_log.py")


@pytest.mark.alone
def test_the_example_of_run_finds_the_slow_pool() -> None:
    said = run(ROOT / "examples" / "run_a_training.py")
    assert "trained\nverdict: data_bound\nbatch_lockstep: " in said


def test_the_picture_is_what_its_script_draws(tmp_path: Path) -> None:
    images = ROOT / "docs" / "img"
    script = tmp_path / "draw_waits.py"
    script.write_text((images / "draw_waits.py").read_text(encoding="utf-8"), encoding="utf-8")
    run(script)
    for name in ("waits.svg", "waits.zh-CN.svg"):
        assert (tmp_path / name).read_text(encoding="utf-8") == (images / name).read_text(encoding="utf-8")


def test_the_pages_of_messages_are_what_their_script_writes(tmp_path: Path) -> None:
    reference = ROOT / "docs" / "reference"
    script = tmp_path / "write_messages.py"
    script.write_text((reference / "write_messages.py").read_text(encoding="utf-8"), encoding="utf-8")
    run(script)
    for name in ("messages.md", "messages.zh-CN.md"):
        assert (tmp_path / name).read_text(encoding="utf-8") == (reference / name).read_text(encoding="utf-8")


def test_the_page_of_commands_is_what_their_parser_says(tmp_path: Path) -> None:
    reference = ROOT / "docs" / "reference"
    script = tmp_path / "write_commands.py"
    script.write_text((reference / "write_commands.py").read_text(encoding="utf-8"), encoding="utf-8")
    run(script)
    assert (tmp_path / "commands.md").read_text(encoding="utf-8") == (reference / "commands.md").read_text(
        encoding="utf-8"
    )
