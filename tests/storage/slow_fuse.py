"""A file system whose latency and parallelism are known: so many servers, each taking so long for a read.

It speaks the kernel's FUSE protocol itself (include/uapi/linux/fuse.h), because no device-mapper, network block
device or FUSE library can be counted on. One file, `data`, of zeros; reads past the page cache. With S servers that
take L seconds a read of B bytes, depth d brings min(d, S) * B / L bytes a second, and the knee is at S. Needs to be
root.

`python slow_fuse.py FOLDER --servers 4 --latency-ms 20` serves until the folder is unmounted.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import os
import queue
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT = 1, 2, 3, 14, 15, 18, 25, 26
OPENDIR, READDIR, RELEASEDIR, INTERRUPT, DESTROY, BATCH_FORGET = 27, 28, 29, 36, 38, 42
IN_HEADER, OUT_HEADER = struct.Struct("<IIQQIIIHH"), struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<6Q3I7I")
NAME, ROOT, FILE = b"data", 1, 2
LARGEST_READ = 1 << 20
_ASYNC_READ, _MAX_PAGES, _DIRECT_IO, _DETACH = 1, 1 << 22, 1, 2

_libc = ctypes.CDLL(None, use_errno=True)


class Server:
    """Answers the kernel's requests; reads are done by a fixed number of threads, each sleeping before it answers."""

    def __init__(self, fd: int, *, size: int, servers: int, latency_s: float, jitter: float) -> None:
        self._fd, self._size, self._latency_s, self._jitter = fd, size, latency_s, jitter
        self._reads: queue.SimpleQueue[tuple[int, int] | None] = queue.SimpleQueue()
        self._zeros = memoryview(bytes(LARGEST_READ))
        self._threads = [threading.Thread(target=self._serve_reads, daemon=True) for _ in range(servers)]

    def run(self) -> None:
        for thread in self._threads:
            thread.start()
        while True:
            try:
                request = os.read(self._fd, LARGEST_READ + 8192)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                return  # ENODEV: unmounted
            self._answer(request)

    def _answer(self, request: bytes) -> None:
        _, opcode, unique, node, *_ = IN_HEADER.unpack_from(request)
        body = request[IN_HEADER.size :]
        if opcode == READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            self._reads.put((unique, max(0, min(size, self._size - offset))))
        elif opcode == INIT:
            # version 7.31, no readahead of the kernel's, a megabyte a request
            facts = struct.pack(
                "<IIIIHHIIHHI28x", 7, 31, 0, _ASYNC_READ | _MAX_PAGES, 512, 512, LARGEST_READ, 1, 256, 0, 0
            )
            self._reply(unique, facts)
        elif opcode == LOOKUP:
            if body.rstrip(b"\0") == NAME:
                self._reply(unique, struct.pack("<QQQQII", FILE, 0, 60, 60, 0, 0) + self._attributes(FILE))
            else:
                self._reply(unique, error=errno.ENOENT)
        elif opcode == GETATTR:
            self._reply(unique, struct.pack("<QII", 60, 0, 0) + self._attributes(node))
        elif opcode in (OPEN, OPENDIR):
            self._reply(unique, struct.pack("<QII", 1, _DIRECT_IO if opcode == OPEN else 0, 0))
        elif opcode == READDIR:
            offset = struct.unpack_from("<QQ", body)[1]
            entry = struct.pack("<QQII", FILE, 1, len(NAME), stat.S_IFREG >> 12) + NAME
            self._reply(unique, b"" if offset else entry + bytes(-len(entry) % 8))
        elif opcode in (RELEASE, RELEASEDIR, FLUSH, DESTROY):
            self._reply(unique)
        elif opcode not in (FORGET, BATCH_FORGET, INTERRUPT):  # these want no answer
            self._reply(unique, error=errno.ENOSYS)

    def _serve_reads(self) -> None:
        turn = 0
        while (read := self._reads.get()) is not None:
            unique, size = read
            turn += 1
            # longer and shorter in turn: the mean stays
            time.sleep(self._latency_s * (1 + (self._jitter if turn % 2 else -self._jitter)))
            self._reply(unique, self._zeros[:size])

    def _attributes(self, node: int) -> bytes:
        is_file = node == FILE
        mode = stat.S_IFREG | 0o444 if is_file else stat.S_IFDIR | 0o555
        size = self._size if is_file else 0
        return ATTRIBUTES.pack(node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def _reply(self, unique: int, data: bytes | memoryview = b"", *, error: int = 0) -> None:
        header = OUT_HEADER.pack(OUT_HEADER.size + len(data), -error, unique)
        with contextlib.suppress(OSError):  # the request was given up, or the folder unmounted
            os.writev(self._fd, [header, data] if len(data) else [header])


def serve(folder: str, *, size: int, servers: int, latency_s: float, jitter: float) -> int:
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other,max_read={LARGEST_READ}"
    if _libc.mount(b"slow", os.fsencode(folder), b"fuse.headrace_slow", 0, options.encode()) != 0:
        print(os.strerror(ctypes.get_errno()), file=sys.stderr)
        return 1
    print("mounted", flush=True)
    Server(fd, size=size, servers=servers, latency_s=latency_s, jitter=jitter).run()
    return 0


@contextlib.contextmanager
def slow_file(
    folder: Path, *, servers: int, latency_s: float, jitter: float = 0.0, size: int = 1 << 40
) -> Iterator[Path]:
    """Mount the file system for a while, served by a process of its own; raises OSError where that cannot be done."""
    command = [sys.executable, __file__, str(folder), "--servers", str(servers)]
    command += ["--latency-ms", str(1000 * latency_s), "--jitter", str(jitter), "--size", str(size)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        assert server.stderr is not None
        if server.stdout.readline() != "mounted\n":
            raise OSError(f"cannot mount: {server.stderr.read().strip()}")
        yield folder / NAME.decode()
    finally:
        _libc.umount2(os.fsencode(folder), _DETACH)
        try:
            server.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.communicate()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--latency-ms", type=float, default=20.0)
    parser.add_argument("--jitter", type=float, default=0.0, help="share by which latencies differ from their mean")
    parser.add_argument("--size", type=int, default=1 << 40)
    options = parser.parse_args()
    return serve(
        options.folder,
        size=options.size,
        servers=options.servers,
        latency_s=options.latency_ms / 1000,
        jitter=options.jitter,
    )


if __name__ == "__main__":
    sys.exit(main())
