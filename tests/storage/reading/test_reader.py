"""A real reader: its blocks hold the files' bytes, views outlive everything, and its death costs nothing but time."""

import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil
import pytest

from headrace.storage.reading import (
    BlockAccess,
    BlockReader,
    Extent,
    ReaderSettings,
    close_files,
    read_extent,
)
from headrace.storage.reading.block_source import BlockSource
from headrace.storage.reading.block_table import Column, HeadWord, InTable, Row, State
from headrace.storage.reading.extents import install_source

MIB = 1 << 20
DEADLINE_S = 30.0


def wait_for(is_so: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, f"{what} did not come about"
        time.sleep(0.005)


@pytest.fixture(autouse=True)
def _nobody_is_asked_afterwards() -> Iterator[None]:
    yield
    install_source(None)
    close_files()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reader") / "shard.tar"
    path.write_bytes(random.Random(3).randbytes(8 * MIB + 777))
    return path


def reader_of(**settings: int) -> BlockReader:
    reader = BlockReader(
        ReaderSettings(**{"space_bytes": 16 * MIB, "block_bytes": MIB, "depth": 8, "most_depth": 8, **settings})
    )
    wait_for(lambda: reader.table.words[HeadWord.STATE] == State.ON, "the reader's start")
    return reader


def are_ready(reader: BlockReader, num_reads: int) -> Callable[[], bool]:
    return lambda: reader.stats().reads >= num_reads and InTable.READY in reader.table.columns[Column.STATE]


def test_extents_come_from_the_blocks_byte_for_byte(data: Path) -> None:
    whole = data.read_bytes()
    extents = [Extent(str(data), at, 3000) for at in range(512, 2 * MIB, 3584)]
    extents += [Extent(str(data), 3 * MIB, 100_000), Extent(str(data), 4 * MIB + 5, 2 * MIB)]
    extents.append(Extent(str(data), 8 * MIB, 777))  # the file's end
    reader = reader_of()
    try:
        reader.plan(0, extents)
        wait_for(lambda: reader.table.words[HeadWord.CLAIMED_BYTES] > 4 * MIB, "the blocks")
        wait_for(lambda: reader.stats().bytes_read > 4 * MIB, "the reads")
        reader.access.attach()
        for extent in extents:
            view = read_extent(extent)
            assert view == whole[extent.offset : extent.offset + extent.size]
            assert view.readonly
        stats = reader.stats()
        assert stats.hits == len(extents)
        assert stats.self_reads == 0
        assert stats.reads < len(extents) / 10  # neighbours were joined
    finally:
        reader.close()


def test_a_view_keeps_its_bytes_however_many_blocks_follow(data: Path) -> None:
    whole = data.read_bytes()
    extents = [Extent(str(data), at * 512 * 1024, 400_000) for at in range(16)]
    reader = reader_of(space_bytes=3 * MIB, block_bytes=512 * 1024, depth=3, most_depth=3)
    try:
        reader.access.attach()
        reader.plan(0, extents[:1])
        wait_for(are_ready(reader, 1), "the first block")
        held = read_extent(extents[0])[1000:2000]  # a slice keeps the block, as the whole view would
        assert reader.stats().hits == 1
        for seq, extent in enumerate(extents[1:] * 3, 1):
            reader.plan(seq, [extent])
            assert read_extent(extent) == whole[extent.offset : extent.offset + extent.size]
            reader.passed(seq)
        assert held == whole[1000:2000]
        assert len(reader.table.leased()) <= 1  # this process's own rows are not told apart by the kernel
        del held
        wait_for(lambda: reader.table.words[HeadWord.CLAIMED_BYTES] == 0, "the end of all claims")
    finally:
        reader.close()


def test_a_view_outlives_the_reader(data: Path) -> None:
    whole = data.read_bytes()
    reader = reader_of()
    reader.access.attach()
    reader.plan(0, [Extent(str(data), 0, MIB // 2)])
    wait_for(are_ready(reader, 1), "the block")
    view = read_extent(Extent(str(data), 0, MIB // 2))
    reader.close()
    reader.close()
    del reader
    assert view == whole[: MIB // 2]
    assert read_extent(Extent(str(data), MIB, 10)) == whole[MIB : MIB + 10]


def test_memory_stays_within_depth_times_block_size(data: Path, tmp_path: Path) -> None:
    large = tmp_path / "large.tar"
    with large.open("wb") as file:
        file.truncate(200 * MIB)
    depth, block = 4, 256 * 1024
    reader = reader_of(space_bytes=2 * depth * block, block_bytes=block, depth=depth, most_depth=depth)
    try:
        reader.access.attach()
        most = 0
        for seq, at in enumerate(range(0, 200 * MIB, 200_000)):
            reader.plan(seq, [Extent(str(large), at, min(200_000, 200 * MIB - at))])
        for seq, at in enumerate(range(0, 200 * MIB, 200_000)):
            read_extent(Extent(str(large), at, min(200_000, 200 * MIB - at)))
            reader.passed(seq)
            if not seq % 50:
                most = max(most, 512 * os.fstat(reader.table.fd).st_blocks)
                assert reader.table.words[HeadWord.CLAIMED_BYTES] <= depth * block
        tables = reader.table.blocks_at
        assert most <= 2 * depth * block + tables
        pss = psutil.Process(reader.pid).memory_full_info().pss
        assert pss < 40 * MIB
    finally:
        reader.close()


def test_errors_are_those_of_the_file(data: Path, tmp_path: Path) -> None:
    missing = Extent(str(tmp_path / "missing.tar"), 0, 1000)
    beyond = Extent(str(data), 8 * MIB, 5000)
    folder = Extent(str(tmp_path), 0, 1000)
    reader = reader_of()
    try:
        reader.access.attach()
        reader.plan(0, [missing, beyond, folder])
        wait_for(lambda: reader.stats().failed_reads >= 3, "the failed reads")
        with pytest.raises(FileNotFoundError, match=r"missing\.tar"):
            read_extent(missing)
        with pytest.raises(OSError, match=r"ends 4223 bytes before the end of a sample.*shard\.tar"):
            read_extent(beyond)
        with pytest.raises(IsADirectoryError):
            read_extent(folder)
        assert reader.is_alive
        reader.plan(1, [Extent(str(data), 0, 10)])
        wait_for(lambda: reader.stats().bytes_read, "a read after the failed ones")
    finally:
        reader.close()


def test_a_killed_reader_costs_reads_not_data(data: Path) -> None:
    whole = data.read_bytes()
    extents = [Extent(str(data), at, 100_000) for at in range(0, 8 * MIB, 100_000)]
    reader = reader_of()
    try:
        reader.access.attach()
        reader.plan(0, extents)
        for number, extent in enumerate(extents):
            if number == 20:
                assert reader.pid is not None
                os.kill(reader.pid, signal.SIGKILL)
            end = min(len(whole), extent.offset + extent.size)
            assert read_extent(extent._replace(size=end - extent.offset)) == whole[extent.offset : end]
        reader.plan(1, extents)
        wait_for(lambda: not reader.is_alive, "the end of the reader")
        reader.plan(2, extents)
        reader.passed(2)
        assert reader.stats().is_alive is False
    finally:
        reader.close()


def test_who_waits_for_a_read_that_never_comes_reads_for_itself(data: Path) -> None:
    """A stopped reader holds a block in flight for ever; once it is dead, nobody waits for it."""
    reader = reader_of()
    try:
        source = BlockSource(reader.table)
        extent = Extent(str(data), 0, 1000)
        assert reader.pid is not None
        os.kill(reader.pid, signal.SIGSTOP)
        reader.table.publish(7, str(data), 0, 4096, 0)  # as the reader would just before it dies
        answers: list[object] = []
        waiting = threading.Thread(target=lambda: answers.append(source(extent)))
        waiting.start()
        os.kill(reader.pid, signal.SIGKILL)
        waiting.join(DEADLINE_S)
        assert answers == [None]
        assert reader.table.words[HeadWord.STATE] == State.GONE
    finally:
        reader.close()


_PARENT = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background ignores it
from headrace.storage.reading import BlockAccess, BlockReader, ReaderSettings; from headrace.storage import Extent
reader = BlockReader(ReaderSettings(space_bytes=1 << 20, block_bytes=1 << 16, depth=2, most_depth=2))
while reader.table.words[0] != 1:
    time.sleep(0.01)
print(reader.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_reader_ends_with_its_parent(how: signal.Signals) -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert parent.stdout is not None
    with parent.stdout:
        reader = psutil.Process(int(parent.stdout.readline()))
        assert reader.name() == "headrace-reader"
        parent.send_signal(how)
        parent.wait()
    gone, alive = psutil.wait_procs([reader], timeout=DEADLINE_S)
    assert not alive
    assert gone


def test_the_reader_loads_neither_torch_nor_numpy(data: Path) -> None:
    reader = reader_of()
    try:
        mapped = Path(f"/proc/{reader.pid}/maps").read_text(encoding="utf-8")
        assert "torch" not in mapped
        assert "numpy" not in mapped
    finally:
        reader.close()


def _use_all(access: BlockAccess, path: str, dies: bool) -> None:
    access.attach()
    whole = Path(path).read_bytes()
    held: list[memoryview] = []
    for at in range(0, 8 * MIB, 100_000):
        size = min(100_000, len(whole) - at)
        view = read_extent(Extent(path, at, size))
        assert view == whole[at : at + size]
        held = [view, *held[:3]]
        if dies and at > 2 * MIB:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_every_start_method_share_the_blocks(data: Path, method: str) -> None:
    context: Any = get_context(method)
    reader = reader_of()
    try:
        reader.plan(0, [Extent(str(data), at, min(100_000, 8 * MIB + 777 - at)) for at in range(0, 8 * MIB, 100_000)])
        workers = [context.Process(target=_use_all, args=(reader.access, str(data), False)) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(DEADLINE_S)
            assert worker.exitcode == 0
            worker.close()
        assert reader.stats().hits > 0
    finally:
        reader.close()


def test_leases_of_a_killed_worker_end_with_it(data: Path) -> None:
    context = get_context("fork")
    reader = reader_of(space_bytes=2 * MIB, block_bytes=MIB // 4, depth=4, most_depth=4)
    try:
        for round_number in range(4):  # its leases would fill the memory
            reader.plan(round_number, [Extent(str(data), at, 100_000) for at in range(0, 4 * MIB, 100_000)])
            worker = context.Process(target=_use_all, args=(reader.access, str(data), True))
            worker.start()
            worker.join(DEADLINE_S)
            assert worker.exitcode == -signal.SIGKILL
            worker.close()
            reader.passed(round_number)
        assert reader.table.leased() == set()
        hits, reads = reader.stats().hits, reader.stats().reads
        reader.access.attach()
        reader.plan(99, [Extent(str(data), 6 * MIB, 150_000)])
        wait_for(lambda: reader.stats().reads > reads, "a block in freed memory")
        read_extent(Extent(str(data), 6 * MIB, 150_000))
        assert reader.stats().hits == hits + 1
    finally:
        reader.close()


def test_a_forked_child_tells_the_reader_nothing(data: Path) -> None:
    whole = data.read_bytes()
    extents = [Extent(str(data), at * 512 * 1024, 400_000) for at in range(16)]
    reader = reader_of()
    try:
        pid = os.fork()
        if pid == 0:
            for seq in range(1000):  # more than the socket takes: what is cut off would mix with the parent's words
                reader.plan(seq, extents)
                reader.passed(seq)
            reader.close()
            os._exit(0)
        os.waitpid(pid, 0)
        reader.access.attach()
        reader.plan(0, extents[:4])
        wait_for(lambda: reader.stats().bytes_read >= 4 * 400_000, "the reads")
        for extent in extents[:4]:
            assert read_extent(extent) == whole[extent.offset : extent.offset + extent.size]
        assert reader.stats().hits == 4
    finally:
        reader.close()


def test_one_that_cannot_be_started_leaves_no_file_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    before = len(os.listdir("/proc/self/fd"))
    reader = BlockReader(ReaderSettings(space_bytes=16 * MIB, block_bytes=MIB, depth=8, most_depth=8))
    assert not reader.is_alive
    reader.close()
    reader.close()
    del reader  # and its mapping
    assert len(os.listdir("/proc/self/fd")) == before


def test_many_threads_each_get_their_bytes(data: Path) -> None:
    whole = data.read_bytes()
    reader = reader_of(space_bytes=4 * MIB, block_bytes=MIB // 4, depth=4, most_depth=4)
    errors: list[BaseException] = []

    def use(seed: int) -> None:
        draw = random.Random(seed)
        try:
            held: list[tuple[memoryview, int]] = []
            for extent in extents:
                view = read_extent(extent)
                held.append((view, extent.offset))
                if len(held) > draw.randint(1, 6):
                    kept, at = held.pop(draw.randrange(len(held)))
                    assert kept == whole[at : at + len(kept)]
        except BaseException as error:
            errors.append(error)

    extents = [Extent(str(data), at, 70_000) for at in range(0, 7 * MIB, 50_000)]
    try:
        reader.access.attach()
        reader.plan(0, extents)
        threads = [threading.Thread(target=use, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert errors == []
        (hits,) = reader.table.totals(Row.HITS)
        assert hits + reader.stats().self_reads == 6 * len(extents)
    finally:
        reader.close()


def test_loose_files_come_into_the_page_cache(tmp_path: Path) -> None:
    paths = []
    for number in range(6):
        path = tmp_path / f"{number}.bin"
        path.write_bytes(bytes(300_000))
        paths.append(str(path))
    reader = reader_of()
    try:
        reader.plan_files(0, [*paths, str(tmp_path / "missing.bin")])
        wait_for(lambda: reader.stats().files == 7, "the files")
        assert reader.stats().file_bytes == 6 * 300_000
    finally:
        reader.close()
