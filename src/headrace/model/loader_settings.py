"""What a loader was asked for, as a recording keeps it: values in, values out."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, kw_only=True)
class LoaderSettings:
    """The settings of a DataLoader that matter for its speed, and whose it is. None: not known, or not given."""

    by: str = ""  # the package that it is from: "torch", "headrace", …
    place: str = ""  # file and line of the script that made it
    batch_size: int | None = None
    num_workers: int | None = None
    prefetch_factor: int | None = None
    pin_memory: bool = False
    persistent_workers: bool = False
    in_order: bool = True

    @property
    def is_ours(self) -> bool:
        return self.by == "headrace"

    def as_text(self) -> str:
        """Return it as a JSON object.

        >>> LoaderSettings.from_text(LoaderSettings(by="torch", num_workers=2).as_text()).num_workers
        2
        """
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> "LoaderSettings":
        """Read what `as_text` wrote; fields that are not known here are left out, and any other text tells nothing."""
        try:
            values = dict(json.loads(text))
        except (ValueError, TypeError):
            return cls()
        return cls(**{name: value for name, value in values.items() if name in cls.__dataclass_fields__})
