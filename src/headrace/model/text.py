"""A sentence in every language that we speak."""

import re
from dataclasses import dataclass

LANGUAGES = ("en", "zh")
_FORMS = re.compile(r"\((?:(\w*)\|)?(\w*)\)")


class Count(int):
    """A number that knows what it counts, in the two forms that English has: `save(s)`, `cop(y|ies)`.

    >>> f"{Count(1):batch(es) (was|were)} late", f"{Count(3):batch(es) (was|were)} late"
    ('1 batch was late', '3 batches were late')
    """

    def __format__(self, spec: str) -> str:
        said = _FORMS.sub(lambda form: (form[1] or "") if self == 1 else form[2], spec)
        return int(self).__format__(spec) if said == spec else f"{int(self)} {said}"


@dataclass(frozen=True)
class Text:
    """One sentence in English and in Chinese, written side by side where it is decided what to say.

    >>> said = Text("{count:save(s)}", "{count} 次保存").filled(count=1)
    >>> said.en, said.of("zh")
    ('1 save', '1 次保存')
    """

    en: str
    zh: str

    def filled(self, **values: object) -> "Text":
        """Return the sentence with its blanks filled in: by a `Text` in the language of each."""
        counts = {name: Count(value) for name, value in values.items() if isinstance(value, int)}
        en, zh = (
            self.of(language).format(
                **{k: v.of(language) if isinstance(v, Text) else v for k, v in (values | counts).items()}
            )
            for language in LANGUAGES
        )
        return Text(en, zh)

    def of(self, language: str) -> str:
        """Return it in one of `LANGUAGES`."""
        return self.zh if language == "zh" else self.en
