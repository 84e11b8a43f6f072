"""The patient: a process of its own that has the target, and goes through the stages of its test as it is told.

It says what it is about to do before it does it: when nothing more comes, whoever watches knows what was in hand.
"""

import contextlib
import itertools
import logging
import multiprocessing
import operator
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
import torch.utils.data as torch_data

from headrace.errors import HeadraceError
from headrace.loader import DataLoader, Orders, Target, count_rows, load_target
from headrace.model import StageTable, describe_error, nbytes_of, plain_key, read_stages, record_stages
from headrace.signals.system import read_machine, read_open_files

from ..contents import digest_of, form_of
from . import inspecting

_OF_ALL = (torch_data.SequentialSampler, torch_data.RandomSampler)  # whatever they are asked, all samples come
_BATCH = 8  # samples, where there is no loader that says
_MOST_SAMPLES = 2000
_MOST_BAD = 8  # samples that fail, after which no more are looked for
_MOST_DIGESTS = 512
_MOST_KEPT = 8  # samples that are looked at again behind the next one
_MOST_DRAWS, _DRAWS_S = 16, 1.0
_MEASURED_S = 1.0


class Ward:
    """The target and what is known of it so far."""

    def __init__(self, orders: Orders, target: Target, fds_before: set[int]) -> None:
        self.say, self.target, self.dataset = orders.say, target, target.dataset
        self.loader: Any = target.loader
        if self.loader is None:
            self.loader = torch_data.DataLoader(self.dataset, batch_size=_BATCH)
        self.folder, self._fds_before = orders.start["folder"], fds_before
        self.loaded: Any = None  # the iterator that batches are taken from
        self.batch_size: int | None = self.loader.batch_size  # None: the loader makes none
        if self.batch_size is None and self.loader.batch_sampler is not None:
            self.batch_size = int(getattr(self.loader.batch_sampler, "batch_size", None) or _BATCH)
        is_stream = isinstance(self.dataset, torch_data.IterableDataset) or not hasattr(self.dataset, "__getitem__")
        self.is_indexed = target.is_indexed or (not is_stream and self.own_sampler is not None)
        self.kind = "stream" if is_stream else "indexed" if self.is_indexed else "no_length"

    @property
    def own_sampler(self) -> Any:
        """A sampler of the user's own, which may ask for anything."""
        batches, samples = self.loader.batch_sampler, self.loader.sampler
        if batches is not None and type(batches) is not torch_data.BatchSampler:
            return batches
        return samples if samples is not None and not isinstance(samples, _OF_ALL) else None

    def keys(self, seconds: float) -> list[Any]:
        """What samples are asked for by: by the user's own sampler, else numbers, spread over the data set."""
        if (own := self.own_sampler) is None:
            count = len(self.dataset)
            anywhere = random.Random(0).sample(range(count), min(count, _MOST_SAMPLES))
            return list(dict.fromkeys([0, count - 1, *anywhere] if count else []))[:_MOST_SAMPLES]
        self.say("at", what="sampler")
        deadline = time.monotonic() + seconds
        asked = own if own is self.loader.sampler else itertools.chain.from_iterable(own)
        found: list[Any] = []
        for key in itertools.islice(asked, _MOST_SAMPLES):
            found.append(plain_key(key))
            if time.monotonic() > deadline:
                break
        return found

    def fetches(self, seconds: float) -> Iterator[tuple[Any, Callable[[], Any]]]:
        """Yield by what each sample is asked for, and what fetches it: those of a stream are counted."""
        if self.is_indexed:
            yield from ((key, partial(operator.getitem, self.dataset, key)) for key in self.keys(seconds))
            return
        self.say("at", what="iter")
        yield from enumerate(itertools.repeat(partial(next, iter(self.dataset)), _MOST_SAMPLES))

    def batches(self, keys: list[Any], count: int) -> list[list[Any]]:
        """So many batches of keys: as the user's own batch sampler puts them together, else by their size."""
        own, size = self.own_sampler, self.batch_size or 1
        if own is not None and own is not self.loader.sampler:
            return [list(map(plain_key, batch)) for batch in itertools.islice(own, count)]
        around = itertools.cycle(keys)
        return [list(itertools.islice(around, size)) if keys else [] for _ in range(count)]

    def make(self, batches: Sequence[Any], cls: Any = torch_data.DataLoader, **more: Any) -> Any:
        """Make a loader like the user's over these batches of keys."""
        more.setdefault("collate_fn", self.target.collate_fn)
        if not self.is_indexed:
            return cls(self.dataset, batch_size=self.batch_size, drop_last=self.loader.drop_last, **more)
        if self.batch_size is None:
            return cls(self.dataset, batch_size=None, sampler=[key for batch in batches for key in batch], **more)
        return cls(self.dataset, batch_sampler=list(batches), **more)

    def worker_options(self, order: dict[str, Any]) -> dict[str, Any]:
        """How the user's workers are made, and that they note what they are asked for."""
        return {
            "num_workers": order["num_workers"],
            "multiprocessing_context": order["method"],
            "worker_init_fn": WorkerStart(self.folder, self.loader.worker_init_fn, order["method"] == "fork"),
            "persistent_workers": self.loader.persistent_workers,
            "prefetch_factor": self.loader.prefetch_factor,
        }

    def handles(self) -> list[inspecting.Handle]:
        """What the data set holds open, and the module that it comes from."""
        module = sys.modules.get(type(self.dataset).__module__)
        names = {name: value for name, value in vars(module).items() if not name.startswith("__")} if module else {}
        return inspecting.find_handles(dataset=self.dataset, module=names)

    def positions(self) -> dict[int, tuple[str, int]]:
        """Files that were opened for reading since the target was loaded: where each stands."""
        files = [one for one in read_open_files(os.getpid()) if one.kind == "file" and one.fd not in self._fds_before]
        return {one.fd: (one.path, one.position) for one in files if not one.flags & (os.O_WRONLY | os.O_APPEND)}


def _length(value: Any) -> int | None:
    try:
        return len(value)
    except Exception:  # a sampler without a length, for which torch does not ask
        return None


def main() -> int:
    """Say that it is there, then do what is asked for."""
    orders = Orders()
    multiprocessing.process.current_process()._config["tempdir"] = orders.start["folder"]  # type: ignore[attr-defined]
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    orders.say("started")
    ward: Ward | None = None
    for order in orders:
        event, began, facts = "done", time.perf_counter(), dict[str, Any]()
        try:
            if order["stage"] == "import":
                ward = _import(orders, facts)
            else:
                assert ward is not None
                for name in ("good", "odd"):
                    order[name] = list(map(plain_key, order.get(name, ())))
                _STAGES[order["stage"]](ward, order, facts)
        except BaseException as error:
            event = "failed"
            facts.setdefault("error", _error(error))
            workers = getattr(ward.loaded, "_workers", ()) if ward is not None else ()
            for worker in workers:
                with contextlib.suppress(Exception):
                    worker.join(0.2)
            facts["exit_codes"] = [worker.exitcode for worker in workers]
        orders.say(event, seconds=time.perf_counter() - began, **facts)
    return 0


def _error(error: BaseException) -> dict[str, str]:
    said = error.what if isinstance(error, HeadraceError) else str(describe_error(error))
    cause = error.__cause__ if isinstance(error, HeadraceError) else None
    found = describe_error(cause or error)
    return {"name": found.name, "said": said[:2000], "traceback": found.traceback[-8000:]}


# ------------------------------------------------------------------------------------------ import


def _import(orders: Orders, facts: dict[str, Any]) -> Ward:
    before = {one.fd for one in read_open_files(os.getpid())}
    try:
        target = load_target(orders.start["target"])
    except HeadraceError as error:
        if error.__cause__ is None:  # the text names nothing; what code of the target raises is a result
            orders.refuse(error)
        raise
    ward = Ward(orders, target, before)
    loader, dataset = ward.loader, ward.dataset
    context = loader.multiprocessing_context or torch.multiprocessing.get_context()
    facts |= {
        "import_s": target.import_s,
        "starts": target.starts_processes,
        "dataset": type(dataset).__name__,
        "kind": ward.kind,
        "length": len(dataset) if target.is_indexed else None,
        "stated": _length(dataset) if ward.kind == "stream" else None,
        "batch_size": ward.batch_size,
        "drop_last": loader.drop_last,
        "is_default": target.collate_fn is torch_data.default_collate,
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "start_method": context.get_start_method(),
        "shm_free_bytes": machine.shm_free_bytes if (machine := read_machine()) is not None else None,
    }
    return ward


# ------------------------------------------------------------------------------------------ samples, in this process


def _sample(ward: Ward, order: dict[str, Any], facts: dict[str, Any]) -> None:
    """Fetch samples for a while; what fails is told with its key."""
    deadline = time.monotonic() + order["seconds"]
    good: list[Any] = []
    bad: list[dict[str, Any]] = []
    first_of: dict[str, Any] = {}  # of each shape: the key
    times: list[float] = []
    facts |= {"form": [], "sample_bytes": 0, "overwritten": [], "has_ended": False}
    table = StageTable()
    # what goes into a batch is collated behind its last sample: a sample must stay what it was
    num_kept = _MOST_KEPT if (ward.batch_size or 1) > 1 and not hasattr(ward.dataset, "__getitems__") else 0
    kept: tuple[Any, int] | None = None
    for key, fetch in ward.fetches(order["seconds"]):
        ward.say("at", sample=_shown(key))
        began = time.perf_counter()
        try:
            with record_stages(table):
                sample = fetch()
        except StopIteration:
            facts["has_ended"] = True
            break
        except (Exception, SystemExit) as error:
            bad.append({"sample": _shown(key), **_error(error)})
            if len(bad) >= _MOST_BAD or not ward.is_indexed:
                break
            continue
        times.append(time.perf_counter() - began)
        good.append(key)
        form = form_of(sample)
        first_of.setdefault(repr([row[:3] for row in form]), key)
        facts["form"] = facts["form"] or form
        facts["sample_bytes"] = max(facts["sample_bytes"], nbytes_of(sample))
        if kept is not None and digest_of(kept[0]) != kept[1]:
            facts["overwritten"], num_kept = facts["overwritten"] or [_shown(good[-2]), _shown(key)], 0
        kept = (sample, digest_of(sample)) if len(good) <= num_kept else None
        del sample
        if len(good) >= order["most"] or time.monotonic() > deadline:
            break
    facts |= {
        "num_good": len(good),
        "good": good[:_MOST_DIGESTS],
        "bad": bad,
        "times": times,
        "slowest": _shown(good[times.index(max(times))]) if times else None,
        "odd_keys": list(first_of.values())[:2] if len(first_of) > 1 else [],
        "draws": _draw(ward, good[0]) if order["most"] > 1 and good and ward.is_indexed else [],
        "parts": {row.name: row.total_ns / 1e9 for row in read_stages(table.words)},
    }


def _draw(ward: Ward, key: Any) -> list[int]:
    """Fetch one sample again and again: whether it is another one each time."""
    drawn: list[int] = []
    deadline = time.monotonic() + _DRAWS_S
    while len(drawn) < _MOST_DRAWS and (len(drawn) < 2 or time.monotonic() < deadline):
        ward.say("at", sample=_shown(key))
        try:
            drawn.append(digest_of(ward.dataset[key]))
        except Exception:
            return []
    return drawn


def _shown(key: Any) -> Any:
    return key if isinstance(key, (int, str)) else repr(key)[:60]


def _loader(ward: Ward, order: dict[str, Any], facts: dict[str, Any]) -> None:
    """Batches in this process: a few, and one of samples that differ in shape."""
    size = ward.batch_size or 1
    keys = order["good"] or (ward.keys(1.0)[:size] if ward.is_indexed else [])
    batches = ward.batches(keys, order["num_batches"])
    if order["odd"] and size > 1 and ward.own_sampler is None:
        batches.insert(0, list(itertools.islice(itertools.cycle(order["odd"]), size)))
    facts["times"] = []
    if not ward.is_indexed or _length(ward.loader) != 0:  # 0: `drop_last` leaves out the only one, which is not full
        list(_taken(ward, facts, batches, max(1, len(batches))))


def _taken(ward: Ward, facts: dict[str, Any], batches: list[Any], most: int, **options: Any) -> Iterator[Any]:
    """Go through so many batches: how long each took, and what is in the first, are facts. Yield what each tells."""
    began = time.perf_counter()  # the first batch is that of a start
    ward.loaded = iter(ward.make(batches, collate_fn=Collation(ward.target.collate_fn), **options))
    for number in range(most):
        ward.say("at", what="batch", number=number)
        told, batch = next(ward.loaded, (None, None))
        if told is None:
            return
        if "error" in told:
            first = number * (ward.batch_size or 1)
            keys = batches[number] if ward.is_indexed else itertools.count(first) if "worker" not in told else ()
            samples = [{"sample": _shown(key), "form": form} for key, form in zip(keys, told["forms"], strict=False)]
            facts |= {"error": told["error"], "samples": samples, "in_collate": True}
            raise RuntimeError("the user's collation raised")  # of which the facts tell
        facts["times"].append(time.perf_counter() - began)
        if number == 0:
            facts |= {"form": form_of(batch), "batch_bytes": nbytes_of(batch), "collate_s": told["collate_s"]}
        del batch
        yield told
        began = time.perf_counter()


class Collation:
    """The user's collation, which gives beside each batch what is told of it, an error as well; a worker tells more."""

    is_first = True

    def __init__(self, collate: Any) -> None:
        self._collate = collate

    def __call__(self, samples: Any) -> tuple[dict[str, Any], Any]:
        worker: Any = torch_data.get_worker_info()
        several = samples if isinstance(samples, list) else []
        told: dict[str, Any] = {}
        if worker is not None:
            told = {"worker": worker.id, "digests": [digest_of(one) for one in several]}
            if Collation.is_first:
                Collation.is_first = False
                told["handles"] = [asdict(one) for one in inspecting.find_handles(dataset=worker.dataset)]
        began, batch = time.perf_counter(), None
        try:
            batch = self._collate(samples)
        except Exception as error:
            told |= {"error": _error(error), "forms": list(map(form_of, several))}
        return told | {"collate_s": time.perf_counter() - began}, batch


# ------------------------------------------------------------------------------------------ workers


class WorkerStart:
    """In each worker, when it starts: note what it has in hand, the user's own function, then what it is asked for."""

    def __init__(self, folder: str, init_fn: Any, is_forked: bool = False) -> None:
        self._folder, self._init_fn, self._is_forked = folder, init_fn, is_forked
        self._kept: list[Any] = []

    def __call__(self, worker: int) -> None:
        info: Any = torch_data.get_worker_info()
        note = os.open(os.path.join(self._folder, f"worker-{worker}"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        if self._is_forked:
            # a training process has used CUDA before it makes workers: then torch raises, where it is used again
            torch.cuda._is_in_bad_fork = lambda: True
            # so that nothing which is opened anew gets the address of what was there before the fork
            self._kept = [part for _, part in inspecting.parts_of(info.dataset, "")]
        if self._init_fn is not None:
            self._init_fn(worker)

        def noted(fetch: Any) -> Any:
            def fetch_noted(dataset: Any, key: Any) -> Any:
                os.pwrite(note, f"{_shown(key)!s:<64.64}".encode(), 0)
                return fetch(dataset, key)

            return fetch_noted

        kind = type(info.dataset)
        for name in ("__getitem__", "__getitems__"):
            with contextlib.suppress(TypeError):  # the class is none of Python's: a list
                if callable(fetch := getattr(kind, name, None)):  # and no property
                    setattr(kind, name, noted(fetch))


def _workers(ward: Ward, order: dict[str, Any], facts: dict[str, Any]) -> None:
    """Batches from several workers; then what these did to files that were open before they were made."""
    method, before = order["method"], ward.positions()
    if method == "fork":
        facts["copied"] = inspecting.copied_by_fork(ward.dataset, "dataset")
    options, most = ward.worker_options(order), order["num_batches" if ward.is_indexed else "most_batches"]
    batches = ward.batches(order["good"], order["num_batches"])
    by_worker: dict[int, list[int]] = {}
    facts |= {"handles": [asdict(one) for one in ward.handles()], "kept": [], "times": []}
    try:
        for told in _taken(ward, facts, batches, most, **options):
            by_worker.setdefault(told["worker"], []).extend(told["digests"])
            facts["kept"] += told.get("handles", ())
    except BaseException:
        init_fn = ward.loader.worker_init_fn
        parts = {"dataset": ward.dataset, "collate_fn": ward.target.collate_fn, "worker_init_fn": init_fn}
        found = (inspecting.find_unpicklable(value, name) for name, value in parts.items() if method != "fork")
        facts["unpicklable"] = next((one for one in found if one is not None), ())
        raise
    finally:
        after = ward.positions()
        moved = {path for fd, (path, at) in before.items() if after.get(fd, (path, at)) != (path, at)}
        facts |= {"by_worker": list(by_worker.values()), "moved": sorted(moved)}
    ward.loaded = None
    if method != "fork":
        with contextlib.suppress(Exception):
            facts["pickled_bytes"] = inspecting.pickled_bytes(ward.dataset)
    elif len(set(order["draws"])) > 1:
        ward.say("at", what="draws")
        facts["drawn"] = _drawn_by_workers(ward, order, options)


def _drawn_by_workers(ward: Ward, order: dict[str, Any], options: dict[str, Any]) -> list[list[list[int]]]:
    """Let two workers fetch one sample as often as this process did, in two passes: by pass, what each drew."""
    key, size = order["good"][0], len(order["draws"])
    options = {**options, "num_workers": 2, "collate_fn": Collation(list)}
    loader = torch_data.DataLoader(ward.dataset, batch_sampler=[[key] * size] * 2, **options)
    passes = []
    for _ in range(2):
        drawn = {info["worker"]: info["digests"] for info, _ in loader}
        passes.append([drawn[worker] for worker in sorted(drawn)])
    return passes


# ------------------------------------------------------------------------------------------ benchmark


def _benchmark(ward: Ward, order: dict[str, Any], facts: dict[str, Any]) -> None:
    """Samples a second: torch's loader and ours with workers, then in this process."""
    size = ward.batch_size or 1
    batches = ward.batches(order["good"], max(1, min(64, len(order["good"]) // size))) * 1000
    options = ward.worker_options(order)
    if ward.loader.multiprocessing_context is None:
        del options["multiprocessing_context"]
    facts |= {"rates": {}, "num_workers": order["num_workers"]}
    for name, cls, more in (
        ("torch", torch_data.DataLoader, options),
        ("headrace", DataLoader, options),
        ("in_process", torch_data.DataLoader, {}),
    ):
        ward.say("at", what=name)
        ward.loaded = iter(ward.make(batches, cls, **more))
        next(ward.loaded, None)  # it holds the start of the workers
        began, rows, took = time.perf_counter(), 0, 0.0
        for batch in ward.loaded:
            rows += count_rows(batch, otherwise=size)
            took = time.perf_counter() - began
            if took >= _MEASURED_S:
                break
        facts["rates"][name] = rows / took if took else 0.0


_STAGES = {"sample": _sample, "loader": _loader, "workers": _workers, "benchmark": _benchmark}

if __name__ == "__main__":
    sys.exit(main())
