"""What several commands take."""

import pytest

from headrace.cli.arguments import default_language


@pytest.mark.parametrize(
    ("environ", "language"),
    [
        ({}, "en"),
        ({"LANG": "en_US.UTF-8"}, "en"),
        ({"LANG": "zh_TW.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LANG": "en_US.UTF-8", "HEADRACE_LANG": "zh"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "HEADRACE_LANG": "klingon"}, "zh"),
    ],
)
def test_the_language_comes_from_the_environment(environ: dict[str, str], language: str) -> None:
    assert default_language(environ) == language
