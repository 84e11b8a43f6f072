"""Provoke faults for real, and let the package that meets one say what it says: `python provoke.py FOLDER FAULT…`.

Each function is one fault. It runs in a process of its own, so it may kill, exhaust or corrupt whatever it likes there;
what it says goes to `FOLDER/FAULT.log`.
"""

import contextlib
import ctypes
import io
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

_AT_A_TIME = 4  # most of them wait for what they meet
_LONGEST_S = 60.0
FAULTS: dict[str, Callable[[Path], None]] = {}


def fault(function: Callable[[Path], None]) -> Callable[[Path], None]:
    FAULTS[function.__name__] = function
    return function


class Dataset:
    """Eight samples; `getitem` is what each of them does."""

    def __init__(self, getitem: Callable[[int], Any], length: int = 8) -> None:
        self.getitem, self.length = getitem, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.getitem(index)


def train(getitem: Callable[[int], Any], *, length: int = 8, keep: bool = False, **settings: Any) -> None:
    """Run a loop over torch's loader, in which `getitem` meets the fault; `keep` hoards the batches."""
    from torch.utils.data import DataLoader

    context = settings.pop("multiprocessing_context", "fork" if settings.get("num_workers", 1) else None)
    loader = DataLoader(
        Dataset(getitem, length),  # type: ignore[arg-type]
        **{"num_workers": 1, "multiprocessing_context": context, **settings},
    )
    kept = []
    for batch in loader:
        kept += [batch] * keep


def dying(how: Callable[[], None]) -> Callable[[int], int]:
    def getitem(index: int) -> int:
        if index == 2:
            time.sleep(0.4)  # until the batches before are fetched: else their loss (KB-16) may be all that is said
            how()
            time.sleep(5)  # a signal comes before this ends
        return index

    return getitem


def by_signal(number: int) -> Callable[[int], int]:
    return dying(lambda: os.kill(os.getpid(), number))


@fault
def worker_killed(_: Path) -> None:
    train(by_signal(signal.SIGKILL))


@fault
def worker_segfault(_: Path) -> None:
    train(by_signal(signal.SIGSEGV))


@fault
def worker_bus_error(_: Path) -> None:
    train(by_signal(signal.SIGBUS))


@fault
def worker_floating_point(_: Path) -> None:
    train(by_signal(signal.SIGFPE))


@fault
def worker_terminated(_: Path) -> None:
    def by_a_stranger() -> None:  # the worker would swallow a SIGTERM from its parent
        if os.fork() == 0:
            os.kill(os.getppid(), signal.SIGTERM)
            os._exit(0)

    train(dying(by_a_stranger))


@fault
def worker_aborted(_: Path) -> None:
    train(dying(os.abort))


@fault
def worker_exited(_: Path) -> None:
    train(dying(lambda: os._exit(3)))


@fault
def mapped_file_truncated(folder: Path) -> None:
    """Meet a bus error that is not /dev/shm: a mapped file became shorter."""
    path = folder / "samples.npy"
    np.save(path, np.zeros(1 << 20, dtype=np.uint8))
    mapped = np.load(path, mmap_mode="r")
    os.truncate(path, 4096)
    train(lambda index: int(mapped[-1 - index]))


def small_shm(size: str) -> None:
    """Give this process a /dev/shm of its own (needs to be root)."""
    if ctypes.CDLL(None, use_errno=True).unshare(0x00020000):  # CLONE_NEWNS
        raise OSError(ctypes.get_errno(), "no mount namespace of its own")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", "/dev/shm"], check=True)


@fault
def shm_full(_: Path) -> None:
    small_shm("2m")
    import torch

    train(lambda _: torch.zeros(1 << 20), timeout=5)  # the batch is lost in the feeder: without a timeout it hangs


@fault
def shm_full_file_system(_: Path) -> None:
    """Follow the common advice for a full /dev/shm: the other sharing strategy uses the same place."""
    small_shm("2m")
    import torch

    torch.multiprocessing.set_sharing_strategy("file_system")
    train(lambda _: torch.zeros(1 << 20), timeout=5)


@fault
def shm_full_before(_: Path) -> None:
    small_shm("64k")
    Path("/dev/shm/full").write_bytes(b"\1" * (64 << 10))
    train(lambda index: index)


@fault
def shm_filled_by_others(_: Path) -> None:
    """Let somebody else fill /dev/shm once the workers run; nothing is collated, so it is the feeder that fails."""
    small_shm("2m")
    import torch

    def getitem(index: int) -> Any:
        if index == 0:
            with Path("/dev/shm/full").open("wb") as file:
                try:
                    file.write(b"\1" * (3 << 20))
                except OSError:
                    pass
        return torch.zeros(1 << 12)

    train(getitem, batch_size=None, timeout=5)


@fault
def file_size_limit(folder: Path) -> None:
    import torch

    def getitem(_: int) -> Any:
        (folder / "maker").write_text(str(os.getpid()))
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        return torch.zeros(1 << 20)

    train(getitem, timeout=5)


@fault
def address_space_limit(_: Path) -> None:
    import torch

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), used + (64 << 20)))
    torch.empty(1 << 25)


@fault
def too_many_maps(_: Path) -> None:
    import torch

    torch.multiprocessing.set_sharing_strategy("file_system")
    kept = []
    while True:
        kept.append(torch.zeros(1).share_memory_())


def hoard(strategy: str, limit: int, **settings: Any) -> None:
    import torch

    torch.multiprocessing.set_sharing_strategy(strategy)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    train(lambda _: [torch.zeros(4) for _ in range(8)], length=4000, keep=True, timeout=20, **settings)


@fault
def too_many_files(_: Path) -> None:
    hoard("file_descriptor", 100)


@fault
def too_many_files_in_the_worker(_: Path) -> None:
    import torch

    def getitem(_: int) -> Any:
        resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
        return [torch.zeros(4) for _ in range(64)]

    train(getitem, timeout=5)


@fault
def too_many_files_opened(folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    (folder / "a").write_bytes(b"a")
    kept = []
    while True:
        kept.append((folder / "a").open("rb"))


@fault
def descriptor_lost_on_its_way(_: Path) -> None:
    """Receive a descriptor when none is free: the kernel drops it from the message."""
    import socket
    from multiprocessing import reduction

    here, there = socket.socketpair()
    socket.send_fds(there, [b"x"], [0])
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    kept = []
    with contextlib.suppress(OSError):
        while True:
            kept.append(os.dup(0))
    reduction.recvfds(here, 1)


@fault
def names_taken_in_shm(_: Path) -> None:
    """Make the same shared memory twice, by the name that MosaicML streaming uses."""
    from multiprocessing.shared_memory import SharedMemory

    name = f"{os.getpid() % 1_000_000:06d}_locals"
    first = SharedMemory(name, create=True, size=8)
    try:
        SharedMemory(name, create=True, size=8)
    finally:
        first.close()
        first.unlink()


@fault
def timed_out(_: Path) -> None:
    train(lambda _: time.sleep(30), timeout=1)


@fault
def pickled_lambda(_: Path) -> None:
    train(lambda index: index, multiprocessing_context="spawn")


@fault
def pickled_file(_: Path) -> None:
    from torch.utils.data import DataLoader

    loader = DataLoader(Dataset(io.TextIOWrapper(io.BytesIO())), num_workers=1, multiprocessing_context="forkserver")  # type: ignore[arg-type]
    next(iter(loader))


@fault
def pickled_lock(_: Path) -> None:
    from threading import Lock

    from torch.utils.data import DataLoader

    next(iter(DataLoader(Dataset(Lock()), num_workers=1, multiprocessing_context="spawn")))  # type: ignore[arg-type]


@fault
def no_main_guard(folder: Path) -> None:
    script = folder / "train.py"
    script.write_text(
        "import multiprocessing\n"
        "multiprocessing.set_start_method('spawn', force=True)\n"
        "from torch.utils.data import DataLoader\n"
        "for batch in DataLoader(range(8), num_workers=1):\n    pass\n"
    )
    subprocess.call([sys.executable, str(script)])


@fault
def iterator_in_a_child(_: Path) -> None:
    from torch.utils.data import DataLoader

    iterator = iter(DataLoader(range(8), num_workers=1, multiprocessing_context="fork"))  # type: ignore[arg-type]
    next(iterator)
    if os.fork() == 0:
        del iterator
        os._exit(0)
    os.wait()


@fault
def prefetch_without_workers(_: Path) -> None:
    train(lambda index: index, num_workers=0, prefetch_factor=2)


@fault
def too_many_workers(_: Path) -> None:
    from torch.utils.data import DataLoader

    DataLoader(range(8), num_workers=1000)  # type: ignore[arg-type]


def uneven(index: int) -> Any:
    import torch

    return torch.zeros(3 + index)


@fault
def uneven_shapes(_: Path) -> None:
    train(uneven, batch_size=4)


@fault
def uneven_shapes_largest_first(_: Path) -> None:
    train(lambda index: uneven(7 - index), batch_size=4)


@fault
def uneven_shapes_in_process(_: Path) -> None:
    train(uneven, batch_size=4, num_workers=0)


@fault
def sample_is_none(_: Path) -> None:
    train(lambda index: None if index == 2 else index, batch_size=4)


@fault
def first_sample_is_none(_: Path) -> None:
    train(lambda _: None, batch_size=4)


@fault
def tensor_then_none(_: Path) -> None:
    train(lambda index: None if index == 2 else uneven(0), batch_size=4)


def filtering_collate(samples: list[Any]) -> Any:
    from torch.utils.data import default_collate

    return default_collate([sample for sample in samples if sample is not None])


@fault
def every_sample_filtered(_: Path) -> None:
    train(lambda _: None, batch_size=4, collate_fn=filtering_collate)


def saved_npz(folder: Path) -> Path:
    np.savez(folder / "sample.npz", volume=np.arange(10000, dtype=np.float32))
    return folder / "sample.npz"


@fault
def npz_flipped_bit(folder: Path) -> None:
    path = saved_npz(folder)
    content = bytearray(path.read_bytes())
    content[20000] ^= 1
    path.write_bytes(content)
    np.load(path)["volume"]


@fault
def npz_truncated(folder: Path) -> None:
    path = saved_npz(folder)
    os.truncate(path, path.stat().st_size // 2)
    np.load(path)


@fault
def npz_handle_shared(folder: Path) -> None:
    """Read one open file through forked workers: they share its position."""
    np.savez(folder / "big.npz", **{f"a{i}": np.random.default_rng(i).random(300_000) for i in range(8)})
    opened = np.load(folder / "big.npz")
    # the first arrays only: far from the end of the file, where the position of another worker would be an EOFError
    train(lambda index: opened[f"a{index % 2}"].sum(), length=400, num_workers=4)


@fault
def array_too_large(_: Path) -> None:
    np.zeros((1 << 24, 1 << 20), dtype=np.uint8)


@fault
def npy_empty(folder: Path) -> None:
    (folder / "sample.npy").touch()
    np.load(folder / "sample.npy")


@fault
def npy_is_a_web_page(folder: Path) -> None:
    (folder / "sample.npy").write_text("<!DOCTYPE html><html><body>404 Not Found</body></html>" * 9)
    np.load(folder / "sample.npy")


@fault
def npy_of_objects(folder: Path) -> None:
    np.save(folder / "sample.npy", np.array([{"a": 1}], dtype=object))
    np.load(folder / "sample.npy")


def truncated_npy(folder: Path) -> Path:
    np.save(folder / "sample.npy", np.zeros((100, 100), dtype=np.float32))
    os.truncate(folder / "sample.npy", 10000)
    return folder / "sample.npy"


@fault
def npy_truncated(folder: Path) -> None:
    np.load(truncated_npy(folder))


@fault
def npy_truncated_stream(folder: Path) -> None:
    np.load(io.BytesIO(truncated_npy(folder).read_bytes()))


@fault
def npy_truncated_mapped(folder: Path) -> None:
    np.load(truncated_npy(folder), mmap_mode="r")


@fault
def npz_member_truncated(folder: Path) -> None:
    """Write an archive whose directory is whole, and whose array is not: a writer that was cut off, then closed."""
    with zipfile.ZipFile(folder / "sample.npz", "w") as archive:
        archive.writestr("volume.npy", truncated_npy(folder).read_bytes())
    np.load(folder / "sample.npz")["volume"]


def saved_tar(folder: Path) -> Path:
    with tarfile.open(folder / "shard.tar", "w") as archive:
        for index in range(4):
            member = tarfile.TarInfo(f"{index:06d}.npy")
            member.size = 5000
            archive.addfile(member, io.BytesIO(bytes(5000)))
    return folder / "shard.tar"


def tar_members(path: Path, mode: str) -> Iterator[bytes]:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for member in archive:
            yield archive.extractfile(member).read()


@fault
def tar_truncated(folder: Path) -> None:
    path = saved_tar(folder)
    os.truncate(path, 8000)
    list(tar_members(path, "r|"))


@fault
def tar_bad_first_header(folder: Path) -> None:
    path = saved_tar(folder)
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    list(tar_members(path, "r:"))


@fault
def tar_empty(folder: Path) -> None:
    (folder / "shard.tar").touch()
    list(tar_members(folder / "shard.tar", "r:"))


@fault
def tar_that_stops_silently(folder: Path) -> None:
    """Cut a shard at a member's boundary: nothing is said at all."""
    path = saved_tar(folder)
    os.truncate(path, 2 * (512 + 5120))
    print("members read:", len(list(tar_members(path, "r|"))), "of 4")


@fault
def shm_manager_missing(_: Path) -> None:
    import torch

    torch._C._initExtension("/nonexistent/torch_shm_manager")
    torch.multiprocessing.set_sharing_strategy("file_system")
    torch.zeros(4).share_memory_()


def truncated_jpeg(folder: Path) -> Path:
    import cv2

    picture = np.random.default_rng(0).integers(0, 255, (256, 256, 3), dtype=np.uint8)
    ok, encoded = cv2.imencode(".jpg", picture)
    assert ok
    path = folder / "picture.jpg"
    path.write_bytes(encoded.tobytes()[: len(encoded) // 2])
    return path


@fault
def jpeg_truncated_opencv(folder: Path) -> None:
    import cv2

    picture = cv2.imread(str(truncated_jpeg(folder)))
    print("decoded:", None if picture is None else picture.shape)


@fault
def jpeg_stray_bytes_opencv(folder: Path) -> None:
    import cv2

    ok, encoded = cv2.imencode(".jpg", np.zeros((64, 64, 3), np.uint8))
    assert ok
    content = encoded.tobytes()
    (folder / "picture.jpg").write_bytes(content[:-2] + b"\0" * 20 + content[-2:])
    print("decoded:", cv2.imread(str(folder / "picture.jpg")).shape)


@fault
def jpeg_truncated_pillow(folder: Path) -> None:
    from PIL import Image

    Image.open(truncated_jpeg(folder)).load()


class Unpicklable:
    def __reduce__(self) -> str:
        raise TypeError("cannot pickle 'Unpicklable' object")


@fault
def unpicklable_sample(_: Path) -> None:
    """Let a worker make what cannot be sent: Python's queue drops it, and the loader waits."""
    train(lambda _: Unpicklable(), batch_size=None, timeout=3)


@fault
def connection_reset(_: Path) -> None:
    """Kill a worker while batches of it are still to be fetched."""
    import torch
    from torch.utils.data import DataLoader

    dataset = Dataset(lambda _: torch.zeros(4))
    iterator = iter(DataLoader(dataset, num_workers=1, prefetch_factor=4, multiprocessing_context="fork"))  # type: ignore[arg-type]
    next(iterator)
    time.sleep(0.5)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else torch's handler speaks first
    os.kill(iterator._workers[0].pid, signal.SIGKILL)  # type: ignore[attr-defined]
    time.sleep(0.2)
    list(iterator)


@fault
def fork_refused(_: Path) -> None:
    from multiprocessing import popen_fork  # noqa: F401  (another user may not be able to read it)

    process = multiprocessing.get_context("fork").Process(target=print)

    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    os.setuid(65534)  # root may always fork
    process.start()


@fault
def webdataset_duplicate(folder: Path) -> None:
    import webdataset

    with tarfile.open(folder / "shard.tar", "w") as archive:
        for name in ("a.jpg", "a.jpg"):
            archive.addfile(tarfile.TarInfo(name))
    list(webdataset.WebDataset(str(folder / "shard.tar"), shardshuffle=False))


@fault
def webdataset_partner_missing(folder: Path) -> None:
    import webdataset

    with tarfile.open(folder / "shard.tar", "w") as archive:
        for name in ("a.jpg", "a_features.npz"):
            archive.addfile(tarfile.TarInfo(name))
    list(webdataset.WebDataset(str(folder / "shard.tar"), shardshuffle=False).to_tuple("jpg", "npz"))


@fault
def webdataset_few_shards(folder: Path) -> None:
    import webdataset
    from torch.utils.data import DataLoader

    with tarfile.open(folder / "shard.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("a.jpg"))
    dataset = webdataset.WebDataset(str(folder / "shard.tar"), shardshuffle=False)
    list(DataLoader(dataset, num_workers=2, batch_size=None, multiprocessing_context="fork"))


@fault
def datasets_few_shards(folder: Path) -> None:
    import datasets
    from torch.utils.data import DataLoader

    (folder / "a.jsonl").write_text('{"a": 1}\n' * 8)
    dataset = datasets.load_dataset(
        "json", data_files=str(folder / "a.jsonl"), split="train", streaming=True, cache_dir=str(folder)
    )
    list(DataLoader(dataset, num_workers=2, multiprocessing_context="fork"))


@fault
def rank_killed(folder: Path) -> None:
    """Let torchrun lose a rank to SIGKILL."""
    script = folder / "train.py"
    script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=1", str(script)]
    subprocess.call(run)


@fault
def cuda_in_forked_worker(_: Path) -> None:
    import torch

    torch.zeros(1, device="cuda")
    train(lambda _: torch.zeros(1, device="cuda"))


class Unpinnable:
    """A batch that page-locked memory is refused to."""

    def pin_memory(self) -> "Unpinnable":
        import torch

        torch.empty(1 << 45, dtype=torch.uint8, pin_memory=True)
        return self


@fault
def pinned_memory_refused(_: Path) -> None:
    train(lambda _: Unpinnable(), batch_size=None, pin_memory=True)


@fault
def pin_memory_thread_ends(_: Path) -> None:
    """Let a worker die from which a batch is still to be fetched: the thread that fetches it ends, too."""
    import torch

    def getitem(index: int) -> Any:
        if index == 20:
            os._exit(0)
        return [torch.zeros(4) for _ in range(64)]

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    train(getitem, length=400, pin_memory=True, prefetch_factor=8)


@fault
def gpu_memory_used_up(_: Path) -> None:
    import torch

    torch.empty(1 << 42, dtype=torch.uint8, device="cuda")


def run(name: str, folder: Path) -> None:
    """Run one fault in this process, with everything it says in a file."""
    with (folder / f"{name}.log").open("wb", buffering=0) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    (folder / name).mkdir()
    print("epoch 3: step 117/900 loss 0.4312 data 0.0021 step 0.1603")
    FAULTS[name](folder / name)


def main(folder: Path, names: list[str]) -> None:
    import torch.utils.data  # noqa: F401  (once: the faults are forked from here)

    fork = multiprocessing.get_context("fork")
    running: dict[str, tuple[float, Any]] = {}  # until when each may take, and its process
    waiting = names[::-1]
    while waiting or running:
        while waiting and len(running) < _AT_A_TIME:
            process = fork.Process(target=run, args=(waiting[-1], folder), name=waiting[-1])
            process.start()
            running[waiting.pop()] = time.monotonic() + _LONGEST_S, process
        time.sleep(0.01)
        for name, (until, process) in list(running.items()):
            if process.is_alive() and time.monotonic() > until:
                process.kill()
                process.join()
            if not process.is_alive():
                del running[name]
                remove_leftovers(folder / name)


def remove_leftovers(folder: Path) -> None:
    for maker in folder.glob("maker"):  # of files that torch leaves where it may not enlarge them
        for left in Path("/dev/shm").glob(f"torch_{maker.read_text()}_*"):
            left.unlink()


if __name__ == "__main__":
    if len(sys.argv) < 3 or not FAULTS.keys() >= set(sys.argv[2:]):
        sys.exit(f"usage: provoke.py FOLDER FAULT…, with FAULT one of: {' '.join(FAULTS)}")
    main(Path(sys.argv[1]), sys.argv[2:])
