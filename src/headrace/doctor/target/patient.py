"""The patient: a process of its own that has the target, and goes through the stages of its test as it is told.

It says what it is about to do before it does it: when nothing more comes, whoever watches knows what was in hand.
"""

import contextlib
import fcntl
import itertools
import logging
import multiprocessing
import os
import stat
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from multiprocessing.process import BaseProcess
from typing import Any

import torch
import torch.utils.data as torch_data

from headrace.errors import HeadraceError
from headrace.loader import DataLoader, Orders, Target, count_rows, load_target
from headrace.model import StageTable, describe_error, leaves_of, nbytes_of, plain_key, read_stages, record_stages

from ..contents import digest_of_all, form_of
from . import inspecting

_OF_ALL = (torch_data.SequentialSampler, torch_data.RandomSampler)  # whatever they are asked, all samples come
_MOST_SAMPLES = 2000
_MOST_BAD = 8  # samples that fail, after which no more are looked for
_MOST_DIGESTS = 512
_MOST_KEPT = 8  # samples that are looked at again behind the next one
_MOST_DRAWS, _DRAWS_S = 16, 1.0
_MEASURED_S = 1.0


class Ward:
    """The target and what is known of it so far."""

    def __init__(self, orders: Orders, target: Target, num_fds: frozenset[int]) -> None:
        self.say, self.target, self.loader = orders.say, target, target.loader
        self.dataset, self.folder, self._fds_before = target.dataset, orders.start["folder"], num_fds
        self.batch_size = self._batch_size()
        is_stream = isinstance(self.dataset, torch_data.IterableDataset) or not hasattr(self.dataset, "__getitem__")
        self.is_indexed = target.is_indexed or (not is_stream and self.own_sampler is not None)
        self.kind = "stream" if is_stream else "indexed" if self.is_indexed else "no_length"

    def _batch_size(self) -> int | None:
        """Samples a batch; None: the loader makes none."""
        if self.loader is None:
            return 8
        if self.loader.batch_size is None and self.loader.batch_sampler is not None:
            return int(getattr(self.loader.batch_sampler, "batch_size", None) or 8)
        return self.loader.batch_size

    @property
    def own_sampler(self) -> Any:
        """A sampler of the user's own, which may ask for anything."""
        batches, samples = (getattr(self.loader, name, None) for name in ("batch_sampler", "sampler"))
        if batches is not None and type(batches) is not torch_data.BatchSampler:
            return batches
        return samples if samples is not None and not isinstance(samples, _OF_ALL) else None

    def keys(self, seconds: float) -> list[Any]:
        """What samples are asked for by: by the user's own sampler, else numbers, spread over the data set."""
        own, sampler = self.own_sampler, getattr(self.loader, "sampler", None)
        if own is None:
            return list(spread(len(self.dataset), _MOST_SAMPLES))
        self.say("at", what="sampler")
        found: list[Any] = []
        deadline = time.monotonic() + seconds
        for key in own:
            found += [plain_key(key)] if own is sampler else map(plain_key, key)
            if len(found) >= _MOST_SAMPLES or time.monotonic() > deadline:
                break
        return found

    def batches(self, keys: list[Any], count: int) -> list[list[Any]]:
        """So many batches of keys: as the user's own batch sampler puts them together, else by their size."""
        own, size = self.own_sampler, self.batch_size or 1
        if own is not None and own is not getattr(self.loader, "sampler", None):
            return [list(map(plain_key, batch)) for batch in itertools.islice(own, count)]
        around = itertools.cycle(keys)
        return [list(itertools.islice(around, size)) if keys else [] for _ in range(count)]

    def gives_no_batch(self) -> bool:
        """Whether the user's loader knows that none comes: `drop_last` leaves out the only one, which is not full."""
        try:
            return self.is_indexed and self.loader is not None and len(self.loader) == 0
        except Exception:  # a sampler without a length, for which torch does not ask
            return False

    def make(self, batches: Sequence[Any], cls: Any = torch_data.DataLoader, **more: Any) -> Any:
        """Make a loader like the user's over these batches of keys."""
        more.setdefault("collate_fn", self.target.collate_fn)
        if not self.is_indexed:
            is_dropped = self.batch_size is not None and bool(getattr(self.loader, "drop_last", False))
            return cls(self.dataset, batch_size=self.batch_size, drop_last=is_dropped, **more)
        if self.batch_size is None:
            return cls(self.dataset, batch_size=None, sampler=[key for batch in batches for key in batch], **more)
        return cls(self.dataset, batch_sampler=list(batches), **more)

    def handles(self) -> list[inspecting.Handle]:
        """What the data set holds open, and the module that it comes from."""
        module = sys.modules.get(type(self.dataset).__module__)
        names = {name: value for name, value in vars(module).items() if not name.startswith("__")} if module else {}
        own = inspecting.find_handles(self.dataset, "dataset")
        fds = {one.fd for one in own}
        return [*own, *(one for one in inspecting.find_handles(names, "module") if one.fd not in fds)]

    def positions(self) -> dict[int, tuple[str, int]]:
        """Files that were opened for reading since the target was loaded: where each stands."""
        found = {}
        for fd in _open_fds() - self._fds_before:
            with contextlib.suppress(OSError):
                is_file = stat.S_ISREG(os.fstat(fd).st_mode)
                flags = fcntl.fcntl(fd, fcntl.F_GETFL)
                if is_file and flags & os.O_ACCMODE != os.O_WRONLY and not flags & os.O_APPEND:
                    found[fd] = os.readlink(f"/proc/self/fd/{fd}"), os.lseek(fd, 0, os.SEEK_CUR)
        return found


def _open_fds() -> frozenset[int]:
    listed = [int(name) for name in os.listdir("/proc/self/fd")]
    return frozenset(fd for fd in listed if os.path.exists(f"/proc/self/fd/{fd}"))  # not that of the listing itself


def spread(count: int, most: int) -> Iterator[int]:
    """Yield so many numbers below a count, each once: the ends first, then finer and finer between them.

    >>> list(spread(8, 99)), list(spread(1000, 4))
    ([0, 7, 4, 2, 6, 1, 3, 5], [0, 999, 500, 250])
    """
    seen = dict.fromkeys([0, count - 1] if count else [])
    step = 1
    while len(seen) < min(count, most):
        step *= 2
        seen.update(dict.fromkeys(count * at // step for at in range(1, step, 2)))
    yield from list(seen)[:most]


class StageFails(Exception):
    """A stage cannot go on; what is known of it so far, with its `error`."""

    def __init__(self, **facts: Any) -> None:
        super().__init__()
        self.facts = facts


def main() -> int:
    """Say that it is there, then do what is asked for."""
    orders = Orders()
    multiprocessing.process.current_process()._config["tempdir"] = orders.start["folder"]  # type: ignore[attr-defined]
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    orders.say("started")
    ward: Ward | None = None
    for order in orders:
        began = time.perf_counter()
        try:
            if order["stage"] == "import":
                ward, facts = _import(orders)
            else:
                assert ward is not None
                for name in ("good", "odd"):
                    order[name] = list(map(plain_key, order.get(name, ())))
                facts = _STAGES[order["stage"]](ward, order)
            orders.say("done", seconds=time.perf_counter() - began, **facts)
        except BaseException as error:
            orders.say("failed", seconds=time.perf_counter() - began, **_told_by(error))
    return 0


def _told_by(error: BaseException) -> dict[str, Any]:
    return error.facts if isinstance(error, StageFails) else {"error": _error(error)}


def _error(error: BaseException) -> dict[str, str]:
    said = error.what if isinstance(error, HeadraceError) else str(describe_error(error))
    cause = error.__cause__ if isinstance(error, HeadraceError) else None
    found = describe_error(cause or error)
    return {"name": found.name, "said": said[:2000], "traceback": found.traceback[-8000:]}


# ------------------------------------------------------------------------------------------ import


def _import(orders: Orders) -> tuple[Ward, dict[str, Any]]:
    before = _open_fds()
    with _watched_starts() as starts:
        try:
            target = load_target(orders.start["target"])
        except HeadraceError as error:
            evidence = {name: str(value) for name, value in error.evidence.items()}
            unusable = {"next_step": error.next_step, **evidence} if error.__cause__ is None else None
            raise StageFails(error=_error(error), starts=starts, unusable=unusable) from error
    ward = Ward(orders, target, before)
    loader, dataset = target.loader, target.dataset
    context = getattr(loader, "multiprocessing_context", None) or torch.multiprocessing.get_context()
    return ward, {
        "import_s": target.import_s,
        "dataset": type(dataset).__name__,
        "kind": ward.kind,
        "length": len(dataset) if target.is_indexed else None,
        "batch_size": ward.batch_size,
        "drop_last": bool(getattr(loader, "drop_last", False)),
        "is_default": target.collate_fn is torch_data.default_collate,
        "num_workers": loader.num_workers if loader is not None else None,
        "prefetch_factor": loader.prefetch_factor if loader is not None else None,
        "start_method": context.get_start_method(),
        "starts": starts,
    }


@contextlib.contextmanager
def _watched_starts() -> Iterator[list[str]]:
    """Note where a module that is being imported starts processes, or goes through a loader."""
    places: list[str] = []
    originals = [(torch_data.DataLoader, "__iter__"), (BaseProcess, "start")]

    def watched(original: Any) -> Any:
        def noted(self: Any, *args: Any) -> Any:
            modules = [one for one in traceback.extract_stack() if one.name == "<module>" and one.filename[0] != "<"]
            if modules and inspecting.is_theirs(modules[-1].filename):  # in a thread there is none
                places.append(f"{os.path.basename(modules[-1].filename)}:{modules[-1].lineno}")
            return original(self, *args)

        return noted

    with contextlib.ExitStack() as undo:
        for cls, name in originals:
            undo.callback(setattr, cls, name, getattr(cls, name))
            setattr(cls, name, watched(getattr(cls, name)))
        yield places


# ------------------------------------------------------------------------------------------ samples, in this process


def _sample(ward: Ward, order: dict[str, Any]) -> dict[str, Any]:
    """Fetch samples for a while; what fails is told with its key."""
    deadline = time.monotonic() + order["seconds"]
    good: list[Any] = []
    bad: list[dict[str, Any]] = []
    forms: dict[str, tuple[Any, Any]] = {}
    counts: Counter[str] = Counter()
    times: list[float] = []
    table, size = StageTable(), 0
    # what goes into a batch is collated behind its last sample: a sample must stay what it was
    num_kept = _MOST_KEPT if (ward.batch_size or 1) > 1 and not hasattr(ward.dataset, "__getitems__") else 0
    kept: tuple[Any, int] | None = None
    overwritten: list[Any] = []
    for key, fetch in _fetches(ward, order):
        ward.say("at", sample=_shown(key))
        began = time.perf_counter()
        try:
            with record_stages(table):
                sample = fetch()
        except StopIteration:
            break
        except (Exception, SystemExit) as error:
            bad.append({"sample": _shown(key), **_error(error)})
            if len(bad) >= _MOST_BAD or not ward.is_indexed:
                break
            continue
        times.append(time.perf_counter() - began)
        good.append(key)
        form = form_of(sample)
        shape = repr([row[:3] for row in form])
        counts[shape] += 1
        forms.setdefault(shape, (key, form))
        size = max(size, nbytes_of(sample))
        if kept is not None and digest_of_all(kept[0]) != kept[1]:
            overwritten, num_kept = overwritten or [_shown(good[-2]), _shown(key)], 0
        kept = (sample, digest_of_all(sample)) if len(good) <= num_kept else None
        del sample
        if len(good) >= order["most"] or time.monotonic() > deadline:
            break
    shapes = [forms[shape] for shape, _ in counts.most_common(2)]
    may_draw = order["most"] > 1 and good and ward.is_indexed
    return {
        "num_good": len(good),
        "good": good[:_MOST_DIGESTS],
        "bad": bad,
        "times": times[:100],
        "form": shapes[0][1] if shapes else [],
        "sample_bytes": size,
        "overwritten": overwritten,
        "odd": [{"sample": _shown(key), "form": form} for key, form in shapes] if len(shapes) > 1 else [],
        "odd_keys": [key for key, _ in shapes] if len(shapes) > 1 else [],
        "draws": _draw(ward, good[0]) if may_draw else [],
        "parts": {row.name: row.total_ns / 1e9 for row in read_stages(table.words)},
    }


def _fetches(ward: Ward, order: dict[str, Any]) -> Iterator[tuple[Any, Callable[[], Any]]]:
    if ward.is_indexed:
        for key in ward.keys(order["seconds"]):
            yield key, lambda key=key: ward.dataset[key]  # type: ignore[misc]
        return
    ward.say("at", what="iter")
    samples = iter(ward.dataset)
    for number in range(_MOST_SAMPLES):
        yield number, lambda: next(samples)


def _draw(ward: Ward, key: Any) -> list[int]:
    """Fetch one sample again and again: whether it is another one each time."""
    drawn: list[int] = []
    deadline = time.monotonic() + _DRAWS_S
    while len(drawn) < _MOST_DRAWS and (len(drawn) < 2 or time.monotonic() < deadline):
        ward.say("at", sample=_shown(key))
        try:
            drawn.append(digest_of_all(ward.dataset[key]))
        except Exception:
            return []
    return drawn


def _shown(key: Any) -> Any:
    return key if isinstance(key, (int, str)) else repr(key)[:60]


def _loader(ward: Ward, order: dict[str, Any]) -> dict[str, Any]:
    """Batches in this process: a few, and one of the samples that differ most."""
    size = ward.batch_size or 1
    keys = order["good"]
    if not keys and ward.is_indexed:
        keys = ward.keys(1.0)[:size] if ward.own_sampler is not None else list(range(min(size, len(ward.dataset))))
    batches = ward.batches(keys, order["num_batches"])
    if order["odd"] and size > 1 and ward.own_sampler is None:
        batches.append(list(itertools.islice(itertools.cycle(order["odd"]), size)))
    if ward.gives_no_batch():
        return {"num_batches": 0}
    facts: dict[str, Any] = {"times": []}
    loader = ward.make(batches, collate_fn=Collation(ward.target.collate_fn))
    for took, told, batch in _taken(ward, iter(loader), batches, time.perf_counter()):
        facts["times"].append(took)
        if len(facts["times"]) == 1:
            facts |= {"form": form_of(batch), "batch_bytes": nbytes_of(batch), "collate_s": told["collate_s"]}
        if len(facts["times"]) >= max(1, len(batches)):
            break
    return facts | {"num_batches": len(facts["times"])}


def _taken(
    ward: Ward, loaded: Iterator[Any], batches: list[list[Any]], began: float
) -> Iterator[tuple[float, dict[str, Any], Any]]:
    """Yield how long each batch took, what `Collation` tells of it, and the batch itself."""
    for number in itertools.count():
        ward.say("at", what="batch", number=number)
        told, batch = next(loaded, (None, None))
        if told is None:
            return
        if "error" in told:
            first = number * (ward.batch_size or 1)
            keys = batches[number] if ward.is_indexed else itertools.count(first) if "worker" not in told else ()
            nothing = [str(_shown(key)) for key, is_none in zip(keys, told["are_none"], strict=False) if is_none]
            raise StageFails(error=told["error"], in_collate=True, nothing=nothing)
        yield time.perf_counter() - began, told, batch
        began = time.perf_counter()


class Collation:
    """The user's collation, which gives beside each batch what is told of it, an error as well; a worker tells more."""

    cuda = ""
    is_first = True

    def __init__(self, collate: Any) -> None:
        self._collate = collate

    def __call__(self, samples: Any) -> tuple[dict[str, Any], Any]:
        worker: Any = torch_data.get_worker_info()
        several = samples if isinstance(samples, list) else []
        told: dict[str, Any] = {}
        if worker is not None:
            told = {"worker": worker.id, "digests": [digest_of_all(one) for one in several]}
            if Collation.is_first:
                Collation.is_first = False
                told["handles"] = [asdict(one) for one in inspecting.find_handles(worker.dataset, "dataset")]
        began, batch = time.perf_counter(), None
        try:
            batch = self._collate(samples)
        except Exception as error:
            are_none = [any(leaf is None for leaf in leaves_of(one)) for one in several]
            told |= {"error": _error(error), "are_none": are_none}
        return told | {"cuda": Collation.cuda, "collate_s": time.perf_counter() - began}, batch


# ------------------------------------------------------------------------------------------ workers


class WorkerStart:
    """In each worker, when it starts: the user's own function, then note what it asks for, and whether CUDA is used."""

    def __init__(self, folder: str, init_fn: Any) -> None:
        self._folder, self._init_fn = folder, init_fn

    def __call__(self, worker: int) -> None:
        if self._init_fn is not None:
            self._init_fn(worker)
        info: Any = torch_data.get_worker_info()
        note = os.open(os.path.join(self._folder, f"worker-{worker}"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)

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
        initialise: Callable[[], None] = torch.cuda._lazy_init

        def touched() -> None:
            frame: Any = sys._getframe(1)
            while frame.f_back is not None and "/torch/" in frame.f_code.co_filename:
                frame = frame.f_back
            file, function = os.path.basename(frame.f_code.co_filename), frame.f_code.co_name
            Collation.cuda = f"{file}:{frame.f_lineno} in {function}"
            initialise()

        torch.cuda._lazy_init = touched


def _workers(ward: Ward, order: dict[str, Any]) -> dict[str, Any]:
    """Batches from several workers."""
    method, given = order["method"], ward.loader
    before, handles = ward.positions(), ward.handles()
    inspecting.mark_files(handles, is_on=True)
    facts: dict[str, Any] = {"handles": [asdict(one) for one in handles]}
    if method == "fork":
        facts["copied"] = inspecting.copied_by_fork(ward.dataset, "dataset")
    options: dict[str, Any] = {
        "num_workers": order["num_workers"],
        "multiprocessing_context": method,
        "worker_init_fn": WorkerStart(ward.folder, getattr(given, "worker_init_fn", None)),
        "collate_fn": Collation(ward.target.collate_fn),
        "persistent_workers": bool(getattr(given, "persistent_workers", False)),
    }
    if given is not None and given.prefetch_factor is not None:
        options["prefetch_factor"] = given.prefetch_factor
    batches = ward.batches(order["good"], order["num_batches"])
    most = order["num_batches"] if ward.is_indexed else order["most_batches"]
    times: list[float] = []
    infos: list[dict[str, Any]] = []
    loaded = None
    try:
        began = time.perf_counter()  # the first batch is that of a start
        loaded = iter(ward.make(batches, **options))
        for took, told, batch in _taken(ward, loaded, batches, began):
            del batch
            times.append(took)
            infos.append(told)
            if len(times) >= most:
                break
    except BaseException as error:
        workers = getattr(loaded, "_workers", ())
        facts |= _told_by(error) | _seen(ward, before, infos)
        if method != "fork":
            facts["unpicklable"] = _unpicklable(ward)
        for worker in workers:
            with contextlib.suppress(Exception):
                worker.join(0.2)
        exit_codes = [worker.exitcode for worker in workers]
        raise StageFails(**facts, exit_codes=exit_codes, num_batches=len(times)) from error
    del loaded
    by_worker: dict[int, list[int]] = {}
    for told in infos:
        by_worker.setdefault(told["worker"], []).extend(told["digests"])
    facts |= _seen(ward, before, infos)
    facts |= {"num_batches": len(times), "times": times, "by_worker": list(by_worker.values())}
    if method != "fork":
        with contextlib.suppress(Exception):
            facts["pickled_bytes"] = inspecting.pickled_bytes(ward.dataset)
    elif len(set(order["draws"])) > 1:
        ward.say("at", what="draws")
        facts["drawn"] = _drawn_by_workers(ward, order, options)
    return facts


def _seen(ward: Ward, before: dict[int, tuple[str, int]], told: list[dict[str, Any]]) -> dict[str, Any]:
    """What the workers did to files that were open before they were made, and to CUDA."""
    after = ward.positions()
    inspecting.mark_files(ward.handles(), is_on=False)
    moved = [{"fd": fd, "path": path} for fd, (path, at) in before.items() if after.get(fd, (path, at)) != (path, at)]
    kept = [handle for info in told for handle in info.get("handles", ())]
    return {"moved": moved, "kept": kept, "cuda": next((info["cuda"] for info in told if info["cuda"]), "")}


def _unpicklable(ward: Ward) -> list[str]:
    init_fn = getattr(ward.loader, "worker_init_fn", None)
    parts = {"dataset": ward.dataset, "collate_fn": ward.target.collate_fn, "worker_init_fn": init_fn}
    found = (inspecting.find_unpicklable(value, name) for name, value in parts.items())
    return list(next((one for one in found if one is not None), ()))


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


def _benchmark(ward: Ward, order: dict[str, Any]) -> dict[str, Any]:
    """Samples a second: torch's loader and ours with workers, then in this process."""
    size = ward.batch_size or 1
    batches = ward.batches(order["good"], max(1, min(64, len(order["good"]) // size))) * 1000
    options: dict[str, Any] = {"num_workers": order["num_workers"]}
    if getattr(ward.loader, "multiprocessing_context", None) is not None:
        options["multiprocessing_context"] = order["method"]
    if (init_fn := getattr(ward.loader, "worker_init_fn", None)) is not None:
        options["worker_init_fn"] = init_fn
    rates: dict[str, float] = {}
    for name, cls, more in (
        ("torch", torch_data.DataLoader, options),
        ("headrace", DataLoader, options),
        ("in_process", torch_data.DataLoader, {}),
    ):
        ward.say("at", what=name)
        rates[name] = _rate(iter(ward.make(batches, cls, **more)), size)
    return {"rates": rates, "num_workers": order["num_workers"]}


def _rate(batches: Iterator[Any], size: int) -> float:
    """Return samples a second, from the second batch on: the first one holds the start of the workers."""
    next(batches, None)
    began, rows, took = time.perf_counter(), 0, 0.0
    for batch in batches:
        rows += count_rows(batch, otherwise=size)
        took = time.perf_counter() - began
        if took >= _MEASURED_S:
            break
    return rows / took if took else 0.0


_STAGES = {"sample": _sample, "loader": _loader, "workers": _workers, "benchmark": _benchmark}

if __name__ == "__main__":
    sys.exit(main())
