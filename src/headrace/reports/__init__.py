"""How a person sees it: findings as terminal text, Markdown and JSON, from the same object.

- `words`: the fixed words of a report, in English and Chinese.
- `findings_text`: findings for a terminal.
- `findings_markdown`: findings for an issue or a wiki.
- `findings_json`: findings for scripts.
- `part_table`: where the workers' time went, as a table.
- `time_table`: where the time of a run went, as a table.
"""

from .findings_json import findings_json
from .findings_markdown import findings_markdown
from .findings_text import findings_text, headline_of
from .time_table import activity_name

__all__ = ["activity_name", "findings_json", "findings_markdown", "findings_text", "headline_of"]
