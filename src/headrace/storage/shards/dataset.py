"""`Shards`: a data set over tar shards, which a pattern names, by index or as a stream."""

import glob
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache
from itertools import chain, islice
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np

from headrace.errors import NotSupported, ShardDamaged, UnusableInput

from ..reading import Extent, close_files, has_source
from .index_file import HAS_DATA_CRC, ShardIndex
from .indexing import Indexed, ensure_index
from .pairing import PairingLike, find_pairing
from .sample_reading import Sample, SampleReader, layouts_of
from .survey import UnpairedMember, count_unpaired, list_unpaired
from .tar_walk import DamagedPlace

_log = logging.getLogger(__name__)

_BUILDERS = 8  # shards indexed at once: most of it is waiting for the disk
_MOST_OPEN = 64  # indexes mapped at once by a process: each holds a file descriptor
_TINY_BYTES = 16 << 10  # samples below this cost less to read together than one by one
_MOST_SAID = 20  # lines about damage in a log; the rest is in `damage`

Urls: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
Decode: TypeAlias = Callable[[Sample], Any] | Mapping[str, Callable[..., Any]]


class SamplePlace(NamedTuple):
    key: str
    shard: str
    offset: int  # of the first of its bytes


class _Shard(NamedTuple):
    indexed: Indexed
    num_samples: int  # that are delivered, or damaged
    num_unpaired: int
    damage: tuple[DamagedPlace, ...]
    num_links: int  # and devices, and members of unknown types: what is neither a field nor a directory
    first_link: str


class Shards:
    """The samples of tar shards, as dicts of their fields with `__key__` and `__url__`, as WebDataset has them.

    A map-style data set: `len`, `shards[i]`, any loader. The first use of these makes an index beside each shard that
    has none. Iterating over it reads shard after shard in large reads, and indexes each when its turn comes.

    `urls`: a path, "data/x-{000000..000123}.tar", a glob, a folder, or a list of these. `pairing`: which members make a
    sample; WebDataset's rule, or patterns by field: {"jpg": "{key}.jpg", "npz": "{key}_features.npz"}. `fields`: read
    these only; members of samples that lack one are in `unpaired`. `decode`: `headrace.decode("jpg", "npz")`, or
    functions by field. `map`: a function of the whole sample, last. `max_samples`: the first so many. `index_dir`:
    where indexes lie, if not beside the shards. `verify`: compare the data of every sample with the checksum in the
    index, for which the first use reads all of it. `views`: fields are read-only memoryviews in place of bytes, without
    a copy where a reader has them in memory; by default what `decode` asks for.
    """

    def __init__(
        self,
        urls: Urls,
        *,
        pairing: PairingLike = "webdataset",
        fields: Sequence[str] | None = None,
        decode: Decode | None = None,
        map: Callable[[Any], Any] | None = None,  # noqa: A002 - the name that everybody knows
        max_samples: int | None = None,
        index_dir: str | os.PathLike[str] | None = None,
        verify: bool = False,
        views: bool | None = None,
    ) -> None:
        if isinstance(fields, str):
            raise TypeError(f"fields={fields!r}: give a list of names, such as [{fields!r}]")
        if max_samples is not None and max_samples < 0:
            raise ValueError(f"max_samples={max_samples} is less than 0")
        self.paths = expand_urls(urls)
        self._pairing = find_pairing(pairing)
        asked = getattr(decode, "fields", None)
        if fields is None and isinstance(asked, Mapping) and not isinstance(decode, Mapping):
            fields = tuple(asked)  # a decoder that names its fields reads no others
        self.fields = None if fields is None else tuple(dict.fromkeys(fields))
        self._decode, self._map = decode, map
        self._max_samples, self._verify = max_samples, verify
        self._index_dir = None if index_dir is None else os.fspath(index_dir)
        self._as_views = bool(getattr(decode, "takes_views", False)) if views is None else views
        self._shards: list[_Shard] | None = None
        self._ends: np.ndarray[Any, Any] = np.zeros(0, np.int64)  # the number of samples up to each shard's end

    def __repr__(self) -> str:
        if self._shards is None:
            return f"Shards({len(self.paths)} shards, not indexed yet)"
        return (
            f"Shards({len(self.paths)} shards, {len(self)} samples, {len(self.damage)} places of damage, "
            f"{self.num_unpaired} members in no sample)"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_reader"}

    @cached_property
    def _reader(self) -> Callable[[int], SampleReader]:
        """By the number of a shard; those used last stay open, in each process for itself."""
        return lru_cache(_MOST_OPEN)(lambda number: self._open_reader(self._indexed()[number].indexed))

    def prepare(self) -> Self:
        """Make the indexes that are missing now, in place of at the first use; return the data set itself."""
        self._indexed()
        return self

    def _indexed(self) -> list[_Shard]:
        if self._shards is None:
            close_files()  # a shard that was replaced under its name would be read from the old file
            with ThreadPoolExecutor(_BUILDERS, "headrace-index") as pool:
                shards = list(map(self._look_into, pool.map(self._index, self.paths)))
            self._ends = np.cumsum([shard.num_samples for shard in shards], dtype=np.int64)
            self._shards = shards
            _tell(shards)
        return self._shards

    def _index(self, path: str) -> Indexed:
        return ensure_index(path, self._pairing, index_dir=self._index_dir, with_data=self._verify)

    def _look_into(self, indexed: Indexed) -> _Shard:
        index = ShardIndex(indexed.path)
        meta, layouts = index.meta, layouts_of(index.meta, self.fields, self._pairing.required)
        counts = (signature["count"] for signature in meta["signatures"])
        num_samples = sum(n for n, layout in zip(counts, layouts, strict=True) if not layout.is_left_out)
        damage = tuple(DamagedPlace.from_json(document, indexed.shard) for document in meta["damage"])
        first_link = meta["skipped_first"][0][0] if meta["links"] else ""
        return _Shard(indexed, num_samples, count_unpaired(index, layouts), damage, meta["links"], first_link)

    @property
    def damage(self) -> tuple[DamagedPlace, ...]:
        return tuple(damage for shard in self._indexed() for damage in shard.damage)

    @property
    def num_unpaired(self) -> int:
        """How many members are in no sample that is delivered."""
        return sum(shard.num_unpaired for shard in self._indexed())

    @property
    def unpaired(self) -> tuple[UnpairedMember, ...]:
        """The members that are in no sample that is delivered, each with the reason."""
        return tuple(
            member
            for shard in self._indexed()
            if shard.num_unpaired
            for member in list_unpaired(ShardIndex(shard.indexed.path), shard.indexed.shard, self.fields, self._pairing)
        )

    def __len__(self) -> int:
        self._indexed()
        num = int(self._ends[-1])
        return num if self._max_samples is None else min(num, self._max_samples)

    def __getitem__(self, index: int) -> Any:
        reader, row = self._find(index)
        return self._finish(reader.sample(row))

    @property
    def __getitems__(self) -> Callable[[Sequence[int]], list[Any]] | None:
        """How loaders fetch a batch at once; None, as if it were not there, for samples that are not tiny."""
        shards = self._indexed()
        num = sum(shard.indexed.head.num_samples for shard in shards)
        size = sum(shard.indexed.head.data_bytes for shard in shards)
        return self._get_many if num and size / num <= _TINY_BYTES else None

    def _get_many(self, indices: Sequence[int]) -> list[Any]:
        if has_source():  # somebody reads ahead, sample by sample: ask for what was planned
            return [self[index] for index in indices]
        wanted = np.array([self._checked(index) for index in indices], np.int64)
        numbers = np.searchsorted(self._ends, wanted, side="right")
        answers: list[Any] = [None] * len(wanted)
        for number in np.unique(numbers).tolist():
            reader = self._reader(number)
            chosen = np.flatnonzero(numbers == number)
            chosen = chosen[np.argsort(wanted[chosen])]  # neighbours are read in one go
            rows = wanted[chosen] - (self._ends[number - 1] if number else 0)
            rows = rows if reader.rows is None else reader.rows[rows]
            for place, sample in zip(chosen.tolist(), reader.samples(rows), strict=True):
                if isinstance(sample, ShardDamaged):
                    raise sample
                answers[place] = self._finish(sample)
        return answers

    def extents(self, index: int) -> tuple[Extent, ...]:
        """Return the reads that fetching a sample takes: what can be read ahead."""
        reader, row = self._find(index)
        return reader.extents(row)

    def place(self, index: int) -> SamplePlace:
        """Return the key, the shard and the offset of a sample."""
        reader, row = self._find(index)
        return SamplePlace(reader.index.key(row), reader.path, reader.offset(row))

    def _checked(self, index: int) -> int:
        num = len(self)
        place = index.__index__()
        if not -num <= place < num:
            raise IndexError(f"sample {index} of {num}")
        return place + num if place < 0 else place

    def _find(self, index: int) -> tuple[SampleReader, int]:
        place = self._checked(index)
        number = int(np.searchsorted(self._ends, place, side="right"))
        reader = self._reader(number)
        return reader, reader.row_of(place - int(self._ends[number - 1]) if number else place)

    def _open_reader(self, indexed: Indexed) -> SampleReader:
        index = ShardIndex(indexed.path)
        is_other = index.head._replace(flags=0) != indexed.head._replace(flags=0)  # checksums may have been added
        if is_other or (self._verify and not index.head.flags & HAS_DATA_CRC):
            raise ShardDamaged(
                f"{indexed.shard} was changed while it was in use: its index is another one now",
                shard=indexed.shard,
                next_step="make the data set anew",
            )
        options = {"as_views": self._as_views, "verify": self._verify}
        return SampleReader(index, indexed.shard, fields=self.fields, required=self._pairing.required, **options)

    def __iter__(self) -> Iterator[Any]:
        """Give the samples shard by shard. A damaged one is said in the log and passed over."""
        close_files()
        streams = (self._stream(number, path) for number, path in enumerate(self.paths))
        for sample in islice(chain.from_iterable(streams), self._max_samples):
            if isinstance(sample, ShardDamaged):  # by index it would be one of the first samples, too
                _log.warning("passed over: %s", sample.what)
            else:
                yield self._finish(sample)

    def _stream(self, number: int, path: str) -> Iterator[Sample | ShardDamaged]:
        if self._shards is not None:
            return self._reader(number).samples()
        indexed = self._index(path)
        _tell([self._look_into(indexed)])
        return self._open_reader(indexed).samples()

    def _finish(self, sample: Sample) -> Any:
        decode = self._decode
        finished: Any = sample
        if isinstance(decode, Mapping):
            for field, function in decode.items():
                if field in sample:
                    try:
                        sample[field] = function(sample[field])
                    except Exception as error:
                        error.add_note(f"while decoding {sample['__key__']}.{field} of {sample['__url__']}")
                        raise
        elif decode is not None:
            finished = decode(sample)
            if isinstance(finished, dict) and "__key__" in finished:
                finished.setdefault("__url__", sample["__url__"])
        return finished if self._map is None else self._map(finished)


def _tell(shards: list[_Shard]) -> None:
    """Say in the log what is wrong: a line for each damage, one each for all links and all members in no sample."""
    damages = [damage for shard in shards for damage in shard.damage]
    for damage in damages[:_MOST_SAID]:
        _log.warning("%s", damage)
    if len(damages) > _MOST_SAID:
        _log.warning("%d more places of damage: see Shards.damage", len(damages) - _MOST_SAID)
    num, num_with = sum(s.num_unpaired for s in shards), sum(s.num_unpaired > 0 for s in shards)
    if num:
        first = next(shard.indexed.shard for shard in shards if shard.num_unpaired)
        _log.warning(
            "%d members in %d shards are in no sample, first in %s: Shards.unpaired names them, with the reasons",
            *(num, num_with, first),
        )
    if linked := [shard for shard in shards if shard.num_links]:
        _log.warning(
            "%d members are passed over: symbolic links, devices or of an unknown type, first %s in %s; "
            "`tar -h` packs what links point to",
            *(sum(shard.num_links for shard in linked), linked[0].first_link, linked[0].indexed.shard),
        )


# ------------------------------------------------------------------ shards as people name them

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?")
_BRACES = re.compile(r"\{([^{}]*)\}")
_NESTED = re.compile(r"\{[^{}]*\{[^{}]*\}[^{}]*\}")
_ELSEWHERE = re.compile(r"(?!file:)(\w[\w+.-]*):(?=//|\S* )|pipe:")
_MOST_SHARDS = 10_000_000  # a slip of the finger in a range should not fill the memory
_NAME_SHARDS = "the path of a shard, a folder of shards, or a pattern such as 'train-{000..127}.tar'"


def expand_urls(urls: Urls) -> list[str]:
    """Return the paths of all shards that are meant, in order; each must be a file that is there.

    Braces give their parts in order, as a shell does; what a glob finds is sorted; a folder stands for its `*.tar`.
    """
    given = [urls] if isinstance(urls, (str, os.PathLike)) else list(urls)
    if not given:
        raise UnusableInput("no shards were named: the list is empty", next_step=_NAME_SHARDS)
    found: list[str] = []
    for url in given:
        text = os.fspath(url)
        if not isinstance(text, str):
            raise TypeError(f"a shard is named by a text or a path, not by {url!r}")
        if _ELSEWHERE.match(text):
            raise NotSupported(
                f"{text} is not a local file: shards are read from files",
                next_step="copy them to a local or mounted folder, and name that",
            )
        for path in expand_braces(text.removeprefix("file://").removeprefix("file:")):
            found += _find(path, text)
    missing = [path for path in found if not os.path.isfile(path)]
    if missing:
        raise UnusableInput(
            f"{len(missing)} of {len(found)} shards are not there",
            first=missing[0],
            **({"last": missing[-1]} if len(missing) > 1 else {}),
            next_step=_NAME_SHARDS,
        )
    return found


def _find(path: str, given: str) -> list[str]:
    if os.path.isdir(path):
        pattern, given = os.path.join(glob.escape(path), "*.tar"), f"{path}/*.tar"
    elif glob.has_magic(path) and not os.path.exists(path):
        pattern = path
    else:
        return [path]
    found = sorted(glob.glob(pattern, recursive=True))
    if not found:
        folder = os.path.abspath(os.path.dirname(given) or ".")
        raise UnusableInput(f"no shard fits {given}", folder=folder, next_step=_NAME_SHARDS)
    return found


def expand_braces(text: str) -> list[str]:
    """Return the texts that braces stand for; braces inside of others are refused.

    >>> expand_braces("x-{008..010}.tar"), expand_braces("{train,val}-{0..1}"), expand_braces("{a}.tar")
    (['x-008.tar', 'x-009.tar', 'x-010.tar'], ['train-0', 'train-1', 'val-0', 'val-1'], ['{a}.tar'])
    """
    if _NESTED.search(text):
        raise NotSupported(f"{text} has braces inside of braces", next_step="a list of patterns without")
    head, *rest = _BRACES.split(text)  # text, what is between braces, text, …
    found = [head]
    for inside, after in zip(rest[::2], rest[1::2], strict=True):
        parts = _parts(inside)
        found = [f"{before}{part}{after}" for before in found for part in parts]
        if len(found) > _MOST_SHARDS:
            raise UnusableInput(f"{text} names more than {_MOST_SHARDS} shards", next_step=_NAME_SHARDS)
    return found


def _parts(inside: str) -> list[str]:
    span = _RANGE.fullmatch(inside)
    if span is None:
        return inside.split(",") if "," in inside else [f"{{{inside}}}"]
    first, last = int(span[1]), int(span[2])
    step = abs(int(span[3] or 1)) or 1
    if abs(last - first) // step >= _MOST_SHARDS:
        raise UnusableInput(f"{{{inside}}} names more than {_MOST_SHARDS} shards", next_step=_NAME_SHARDS)
    is_padded = any(len(number) > 1 and number.lstrip("-").startswith("0") for number in (span[1], span[2]))
    width = max(len(span[1]), len(span[2])) if is_padded else 0
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return [f"{number:0{width}d}" for number in numbers]
