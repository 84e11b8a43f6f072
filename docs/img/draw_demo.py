"""Draw the picture of the READMEs: what a real `headrace demo` says, light and dark, in both languages.

`python docs/img/draw_demo.py` runs the demo once and writes the four pictures; on an idle machine, please.
"""

import io
import re
from pathlib import Path
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME

from headrace.cli import demo
from headrace.cli.terminal import Terminal, speak

# no fonts from elsewhere: whoever looks has one whose letters are equally wide
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


class Drawn(Terminal):
    """A terminal that keeps what is printed."""

    def __init__(self) -> None:
        super().__init__()
        self.console = Console(record=True, width=100, file=io.StringIO(), highlight=False, force_terminal=True)

    def result(self, what: Any) -> None:
        self.console.print(what, markup=False)


def main() -> None:
    runs = demo.measure(demo.EPOCHS, Terminal())
    for language, ending in (("en", ""), ("zh", ".zh-CN")):
        speak(language)
        for name, theme in (("light", DEFAULT_TERMINAL_THEME), ("dark", SVG_EXPORT_THEME)):
            terminal = Drawn()
            demo.print_report(runs, terminal)
            picture = terminal.console.export_svg(
                title="$ headrace demo", theme=theme, code_format=FORMAT, unique_id="demo"
            )
            Path(__file__).with_name(f"demo-{name}{ending}.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
