"""Rules about data sets: handles, shares of workers and ranks, hidden failures, threads, what is loaded unchecked."""

import ast
import re
from collections.abc import Iterator

from .script import Function, Script, Spot, is_self, within

# What opens a file that stays open, and cannot be shared by processes that were forked.
_HANDLES = {
    *("open", "io.open", "gzip.open", "h5py.File", "lmdb.open", "lmdb.Environment", "tarfile.open", "zipfile.ZipFile"),
    *("sqlite3.connect", "tables.open_file", "netCDF4.Dataset", "rasterio.open"),
}
# Of OpenCV: what runs in threads.
_THREADED = {
    *("cv2.resize", "cv2.warpAffine", "cv2.warpPerspective", "cv2.remap", "cv2.undistort", "cv2.cvtColor", "cv2.blur"),
    *("cv2.GaussianBlur", "cv2.medianBlur", "cv2.bilateralFilter", "cv2.filter2D", "cv2.dilate", "cv2.erode"),
}
_BY_WORKER = re.compile(r"worker|split_by|shard\(|num_shards|islice|distribut", re.IGNORECASE)
_BY_RANK = re.compile(r"rank|world_size|split_by_node|split_dataset_by_node|num_replicas|dist\.", re.IGNORECASE)
_SEVERAL_RANKS = re.compile(rb"DistributedDataParallel|init_process_group|FullyShardedDataParallel|fully_shard")
_REPORTS = re.compile(r"log|warn|print|write|append|add|raise|record|count|fail|bad|skip", re.IGNORECASE)
# Another data set, which has its share already.
_WRAPS = re.compile(r"dataset|loader|reader|source|stream|pipe|sampler|iter|generator|queue", re.IGNORECASE)
# About the end of something, or a key that may be missing, and no sample that fails.
_NO_FAILURE = re.compile(r"StopIteration|KeyError|AttributeError|ImportError|GeneratorExit|Keyboard|IndexError|Empty")
_DRAWS = re.compile(r"rand|choice|rng|range\(self\.\w+\)")  # what draws at random need not share
_MANY = 1_000_000
# What comes in the place of a sample that failed: nothing, or another sample.
_HIDES = re.compile(r"return( None| \((None,? ?)*\)| self\[.+\]| .+\.__getitem__\(.*\))?", re.DOTALL)


def check(script: Script) -> Iterator[Spot]:
    is_in_process = bool(script.loaders) and all(call.is_off("num_workers") for call in script.loaders)
    named = [home for home in script.each(ast.ClassDef) if any(base.endswith("Dataset") for base in script.bases(home))]
    for home in script.each(ast.ClassDef):
        methods = {one.name: one for one in home.body if isinstance(one, Function)}
        has_samples = bool({"__getitem__", "__iter__"} & methods.keys())
        if (home in named and has_samples) or {"__getitem__", "__len__"} <= methods.keys():
            if not is_in_process:
                yield from _handles(script, home, methods)
                yield from _shares(script, home, methods)
                yield from _threads(script, dict(methods))
            yield from _large_index(script, methods)
            yield from _swallowed(script, home, methods)
    for store in script.each(ast.Assign):
        name = script.dotted(store.targets[0]).rpartition(".")[2]
        if name == "LOAD_TRUNCATED_IMAGES" and script.constants(store.value) == [True]:
            yield script.found("truncated-images", store)
    for call in script.calls("numpy.load") if script.loaders or named else ():
        if any(one.arg == "allow_pickle" and script.constants(one.value) == [True] for one in call.keywords):
            yield script.found("allow-pickle", call)


def _handles(script: Script, home: ast.ClassDef, methods: dict[str, Function]) -> Iterator[Spot]:
    """`self.file = h5py.File(path)` in `__init__`, used when a sample is asked for."""
    start = methods.get("__init__")
    if start is None or "__getstate__" in methods:
        return
    for store in within(start, ast.Assign):
        match store:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Call() as call):
                named = (one for one in within(home, ast.Attribute) if is_self(one.value) and one.attr == name)
                users = [one for one in named if one not in store.targets]
                is_used = any(script.function_of(one) is not start for one in users)
                is_closed = f"self.{name}.close()" in ast.unparse(start)
                is_kept = all(isinstance(one.ctx, ast.Load) for one in users) and not is_closed
                if script.dotted(call.func) in _HANDLES and is_used and is_kept:
                    yield script.found("handle-before-fork", store, code=ast.unparse(store))


def _shares(script: Script, home: ast.ClassDef, methods: dict[str, Function]) -> Iterator[Spot]:
    """A stream over what is stored: split between workers, and between ranks where there are some."""
    stream = methods.get("__iter__")
    if stream is None or "IterableDataset" not in script.bases(home):
        return
    draws = any(within(stream, ast.While)) or _DRAWS.search(ast.unparse(stream))
    sources = [ast.unparse(one.iter) for one in within(stream, ast.For)]
    if draws or not any("self." in one for one in sources) or any(map(_WRAPS.search, sources)):
        return
    if not _BY_WORKER.search(ast.unparse(home)) and "worker_init_fn" not in script.text:
        yield script.found("no-worker-split", stream, name=home.name)
    elif _SEVERAL_RANKS.search(script.project) and not _BY_RANK.search(ast.unparse(home)):
        yield script.found("no-rank-split", stream, name=home.name)


def _threads(script: Script, methods: dict[str, Function]) -> Iterator[Spot]:
    """The first call of OpenCV in what makes a sample: `__getitem__`, `__iter__`, and the methods that they call."""
    named = {"__getitem__", "__iter__"} & methods.keys()
    inside: list[ast.AST] = []
    while named:
        nodes = [node for name in named for node in ast.walk(methods.pop(name))]
        inside += nodes
        named = {getattr(node, "attr", "") for node in nodes} & methods.keys()
    calls = [one for one in inside if isinstance(one, ast.Call) and script.dotted(one.func) in _THREADED]
    if calls and b"setNumThreads" not in script.project:
        yield script.found("cv2-threads", calls[0], code=script.dotted(calls[0].func))


def _large_index(script: Script, methods: dict[str, Function]) -> Iterator[Spot]:
    """`self.index = list(range(50_000_000))`, `[... for i in range(N)]`: lengths that the file tells."""
    for store in within(methods.get("__init__"), ast.Assign):
        match store:
            case (
                ast.Assign(value=ast.ListComp(generators=[ast.comprehension(iter=items, ifs=[])]))
                | ast.Assign(value=ast.Call(func=ast.Name(id="list"), args=[items]))
            ) if isinstance(items, ast.Call) and script.dotted(items.func) == "range" and len(items.args) == 1:
                lengths = script.constants(items.args[0])
                if lengths and all(isinstance(one, int) and one >= _MANY for one in lengths):
                    yield script.found("large-python-index", store, count=f"{lengths[0]:,}", code=ast.unparse(store))


def _swallowed(script: Script, home: ast.ClassDef, methods: dict[str, Function]) -> Iterator[Spot]:
    """`except: return None`, and `except: return self[another]`, where a sample is made."""
    for name in {"__getitem__", "__iter__"} & methods.keys():
        for handler in within(methods[name], ast.ExceptHandler):
            if script.function_of(handler) is methods[name]:
                last, is_silent = handler.body[-1], not _REPORTS.search(ast.unparse(handler))
                is_left_out = isinstance(last, (ast.Continue, ast.Pass)) and name == "__iter__" and is_silent
                is_expected = handler.type is not None and _NO_FAILURE.search(ast.unparse(handler.type))
                is_counted = any(within(handler, ast.AugAssign))
                is_hidden = is_left_out or _HIDES.fullmatch(ast.unparse(last))
                if is_hidden and not is_expected and not is_counted:
                    yield script.found("swallowed-sample", handler, name=f"{home.name}.{name}", code=ast.unparse(last))
