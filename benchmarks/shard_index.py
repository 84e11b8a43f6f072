"""How fast are the members of a tar shard listed?

`tarfile.getmembers` against the walk through the headers, and against the whole index: walk, pairing, grouping and the
file written. On W3's shards (10,000 samples of 3 KB and a label), on the same with a pax header before each member (as
`tarfile.add` and WebDataset's writer make them), and on W1's (100 samples of 3.5 MB). All in the page cache; what each
found is compared before the clock starts.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from harness import Bar, Contender, Options, Question, Result, ask
from tar_shards import ensure_shards, warm_shards, write_tar

W3, PAX, W1 = "W3 shard", "W3 shard, pax", "W1 shard"
WANTED = {W3: 10.0, PAX: None, W1: None}
TARFILE, WALK, INDEX = "tarfile.getmembers", "walk", "index made and written"


def shard_of(group: str, options: Options) -> Path:
    first = ensure_shards("sa1b" if group == W1 else "small", options.size)[0]
    if group != PAX:
        return first
    path = first.with_name("pax.tar_")
    if not path.exists():
        with tarfile.open(first) as archive:
            members = [(info.name, archive.extractfile(info).read()) for info in archive]  # type: ignore[union-attr]
        write_tar(path, members, mtime=1.5)
    return path


def by_tarfile(path: Path) -> list[tuple[str, int, int]]:
    with tarfile.open(path) as archive:
        return [(info.name, info.offset_data, info.size) for info in archive.getmembers()]


def by_walk(path: Path) -> list[tuple[str, int, int]]:
    from headrace.storage.shards.indexing import walk_shard

    members = walk_shard(str(path)).members
    at, length = members.name_at.tolist(), members.name_len.tolist()
    names = [members.names[a : a + n].decode() for a, n in zip(at, length, strict=True)]
    return list(zip(names, members.data_at.tolist(), members.size.tolist(), strict=True))


def timed(work: Callable[[], object], num_members: int, seconds: float) -> Result:
    work()
    num, begin = 0, time.perf_counter()
    while (elapsed_s := time.perf_counter() - begin) < seconds or num < 3:
        work()
        num += 1
    return {
        "members_per_s": num * num_members / elapsed_s,
        "shard_ms": 1e3 * elapsed_s / num,
        "num_members": num_members,
    }


def contenders(options: Options) -> list[Contender]:
    found = []
    for group in WANTED:

        def run(name: str, group: str = group) -> Result:
            from headrace.storage.shards.indexing import ensure_index, walk_shard
            from headrace.storage.shards.pairing import ByFirstDot

            path = shard_of(group, options)
            warm_shards([path])
            listed = by_tarfile(path)
            if by_walk(path) != listed:
                raise SystemExit("the walk and tarfile do not agree")
            with tempfile.TemporaryDirectory() as folder:
                work: dict[str, Callable[[], object]] = {
                    TARFILE: lambda: tarfile.open(path).getmembers(),  # noqa: SIM115 - as one lists a shard
                    WALK: lambda: walk_shard(str(path)),
                    INDEX: lambda: ensure_index(str(path), ByFirstDot(), index_dir=folder, anew=True),
                }
                return timed(work[name], len(listed), options.seconds)

        found += [Contender(name, partial(run, name), group) for name in (TARFILE, WALK, INDEX)]
    return found


def bars(_: Options) -> list[Bar]:
    found = []
    for group, least in WANTED.items():
        for name in (INDEX, WALK):
            at_least = least if name == INDEX else None
            title = f"{group}: {name} / {TARFILE}"
            found.append(Bar(title, f"{group}/{name}", "members_per_s", (f"{group}/{TARFILE}",), at_least))
    return found


QUESTION = Question(
    doc=__doc__,
    contenders=contenders,
    bars=bars,
    columns=("members_per_s", "shard_ms", "num_members"),
    rounds=5,
    seconds=1.0,
    quick_seconds=0.1,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
