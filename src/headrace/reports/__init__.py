"""How a person sees it: findings as terminal text, Markdown and JSON, from the same object.

- `contents`: what a report says, whatever its form: headline, sections and tables, in English and Chinese.
- `forms`: text for a terminal, Markdown for an issue or a wiki, JSON for scripts.
"""

from .contents import headline_of, opening_of
from .forms import findings_json, findings_markdown, findings_text

__all__ = ["findings_json", "findings_markdown", "findings_text", "headline_of", "opening_of"]
