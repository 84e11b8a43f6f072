"""Every planted defect is found, and nothing else; healthy scripts are left alone; files, folders, comments."""

import re
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from headrace.doctor.lint import RULES, LintResult, lint

from .planted import HEALTHY, PLANTED


def look(folder: Path, code: str, name: str = "train.py") -> LintResult:
    path = folder / name
    path.write_text(dedent(code), encoding="utf-8")
    return lint([path])


def marks(code: str) -> list[tuple[int, str]]:
    lines = dedent(code).splitlines()
    return [(at, mark) for at, line in enumerate(lines, 1) for mark in re.findall(r"#! ([\w-]+)", line)]


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_found(name: str, tmp_path: Path) -> None:
    result = look(tmp_path, PLANTED[name])
    assert [(one.line, one.rule.name) for one in result.findings] == marks(PLANTED[name])
    assert result.unread == {}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_script_is_left_alone(name: str, tmp_path: Path) -> None:
    assert look(tmp_path, HEALTHY[name]) == LintResult((), {}, 1, 0)


def test_every_rule_is_planted_and_speaks_two_languages() -> None:
    assert {rule for code in PLANTED.values() for _, rule in marks(code)} == set(RULES)
    for rule in RULES.values():
        for text in (rule.title, rule.why, rule.fix):
            assert text.en
            assert re.search(r"[一-鿿]", text.zh) or text.zh == text.en


def test_a_finding_names_the_flag_the_code_and_what_to_do(tmp_path: Path) -> None:
    clamped, ignored = look(tmp_path, PLANTED["clamped_and_hard_coded"]).findings
    assert clamped.title.en == "--num-workers is clamped: min(4, max(2, args.num_workers))"
    assert "use args.num_workers as it is" in clamped.fix.en
    assert ignored.title.zh == "--prefetch-factor 从未被读取：数据加载器用的是 prefetch_factor=2"


def test_yaml_is_read_as_it_stands(tmp_path: Path) -> None:
    config = """
        data: &data
          num_workers: 0  # as in a guide
          prefetch_factor: 2
        again: *data
        ? [a, b]
        : {num_workers: 4}
        healthy: {num_workers: 4, prefetch_factor: 2}
        later: {num_workers: 0, prefetch_factor: null, persistent_workers: no}
        open: {num_workers: "${n}", prefetch_factor: 2, path: !include other.yaml}
        ---
        - {num_workers: 0, persistent_workers: true}  # headrace: ignore[workers-needed]
        """
    result = look(tmp_path, config, "config.yaml")
    assert [(one.line, one.rule.name) for one in result.findings] == [(4, "workers-needed")]
    assert result.num_ignored == 1


def test_without_pyyaml_the_others_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "config.yml").write_text("a: 1")
    look(tmp_path, PLANTED["unchecked"])
    result = lint([tmp_path])
    assert len(result.findings) == 2
    assert result.unread == {str(tmp_path / "config.yml"): "YAML is read with PyYAML; pip install 'headrace[lint]'"}


@pytest.mark.parametrize(
    ("comment", "is_silenced"),
    [
        ("# headrace: ignore", True),
        ("# headrace: ignore[truncated-images]", True),
        ("# fetched anew every night  # headrace: ignore[allow-pickle, truncated-images]", True),
        ("# headrace: ignore[allow-pickle]", False),
        ("# ignore", False),
    ],
)
@pytest.mark.parametrize("form", ["X.LOAD_TRUNCATED_IMAGES = True  {}", "{}\nX.LOAD_TRUNCATED_IMAGES = True"])
def test_a_comment_silences_a_rule(form: str, comment: str, is_silenced: bool, tmp_path: Path) -> None:
    result = look(tmp_path, form.format(comment))
    assert (len(result.findings), result.num_ignored) == ((0, 1) if is_silenced else (1, 0))


def test_a_comment_behind_code_is_about_its_own_line(tmp_path: Path) -> None:
    result = look(tmp_path, "x = 1  # headrace: ignore\nX.LOAD_TRUNCATED_IMAGES = True")
    assert len(result.findings) == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"def f(:\n", "invalid syntax (line 1)"),
        (b"print 'two'\n", "Missing parentheses"),
        (b"x = 1\n\xff\xfe", "codec can't decode"),
        (b"# coding: klingon\n", "unknown encoding: klingon"),
        (b"x = '\x00'\n", "null bytes"),
        (b"(" * 5000, "too many nested parentheses"),
        (b"x = " + b"-" * 100_000 + b"1", ""),
    ],
)
def test_a_file_that_is_no_python_is_said_and_the_others_go_on(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(content)
    look(tmp_path, PLANTED["overwritten"])
    result = lint([tmp_path, tmp_path / "gone.py"])
    assert [one.rule.name for one in result.findings] == ["flag-overridden"]
    assert list(result.unread) == [str(tmp_path / "gone.py"), str(tmp_path / "a.py")]
    assert reason in result.unread[str(tmp_path / "a.py")]


def test_folders_are_searched_but_for_those_that_others_wrote(tmp_path: Path) -> None:
    for name in (".venv/lib", ".git", "node_modules", "src/deep"):
        (tmp_path / name).mkdir(parents=True)
        look(tmp_path / name, PLANTED["overwritten"])
    (tmp_path / "notes.txt").write_text("no script")
    result = lint([tmp_path, tmp_path / "src"])
    assert [one.path for one in result.findings] == [str(tmp_path / "src/deep/train.py")]
    assert result.num_files == 1


def test_files_that_are_looked_at_together_are_one_project(tmp_path: Path) -> None:
    look(tmp_path, PLANTED["threads_of_opencv"], "data.py")
    assert len(lint([tmp_path]).findings) == 1
    look(tmp_path, "import cv2\ncv2.setNumThreads(0)", "train.py")
    assert lint([tmp_path]).findings == ()


def test_a_value_that_comes_from_itself_is_unknown(tmp_path: Path) -> None:
    code = """
        from torch.utils.data import DataLoader
        n = n or m
        m = n if flag else m
        loader = tqdm(loader)
        kwargs = dict(**kwargs)
        def f(x): return f(x)
        for batch in loader: pass
        DataLoader(a, num_workers=f(m), prefetch_factor=2, **kwargs)
        """
    assert look(tmp_path, code).findings == ()
