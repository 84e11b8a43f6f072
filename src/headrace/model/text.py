"""A sentence in every language that we speak."""

from dataclasses import dataclass

LANGUAGES = ("en", "zh")


@dataclass(frozen=True)
class Text:
    """One sentence in English and in Chinese, written side by side where it is decided what to say.

    >>> said = Text("every {period} steps", "每 {period} 步一次").filled(period=32)
    >>> said.en, said.of("zh")
    ('every 32 steps', '每 32 步一次')
    """

    en: str
    zh: str

    def filled(self, **values: object) -> "Text":
        """Return the sentence with its blanks filled in: by a `Text` in the language of each."""
        en, zh = (
            self.of(language).format(**{k: v.of(language) if isinstance(v, Text) else v for k, v in values.items()})
            for language in LANGUAGES
        )
        return Text(en, zh)

    def of(self, language: str) -> str:
        """Return it in one of `LANGUAGES`."""
        return self.zh if language == "zh" else self.en
