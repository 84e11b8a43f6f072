"""Deflate streams into buffers of known size: libdeflate where it can be found, zlib otherwise."""

import contextlib
import ctypes
import functools
import importlib.util
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from .buffers import Bytes

_BAD_DATA, _SHORT_OUTPUT, _INSUFFICIENT_SPACE = 1, 2, 3
_STEP_BYTES = 1 << 20
_GZIP_WBITS, _RAW_WBITS = 31, -15


class BadStream(Exception):
    """A deflate stream that is damaged, or that does not give what it should. Codecs say whose it is."""


class ZlibInflater:
    """Python's own zlib: always there, half as fast, and what it unpacks is fresh memory that is then copied."""

    def inflate(self, data: memoryview, out: Bytes) -> None:
        """Inflate a raw stream that gives exactly `out`."""
        machine = zlib.decompressobj(_RAW_WBITS)
        piece = _unpack(machine, data, out.nbytes + 1)
        if len(piece) > out.nbytes:
            raise BadStream("the stream gives more than it should")
        if len(piece) < out.nbytes or not machine.eof:
            raise BadStream(f"the stream ended after {len(piece)} of {out.nbytes} bytes")
        out[:] = np.frombuffer(piece, np.uint8)

    def gunzip(self, data: memoryview, out: Bytes) -> None:
        """Unpack gzip members that give `out` and perhaps more, and check each member that is read to its end."""
        done = 0
        while True:
            machine = zlib.decompressobj(_GZIP_WBITS)
            piece = _unpack(machine, data, out.nbytes - done or 1)[: out.nbytes - done]
            out[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
            done += len(piece)
            if done == out.nbytes:
                break
            data = memoryview(machine.unused_data)
            if not machine.eof or not any(data[:1]):  # ends here, or in the zeros that some tools pad with
                raise BadStream(f"the stream ended after {done} of {out.nbytes} bytes")
        while not machine.eof:  # to the check sum, which comes after the data
            if not _unpack(machine, machine.unconsumed_tail, _STEP_BYTES) and not machine.eof:
                raise BadStream("the stream is cut short")

    def crc32(self, data: memoryview) -> int:
        return zlib.crc32(data)


def _unpack(machine: Any, data: memoryview | bytes, most: int) -> bytes:
    try:
        piece: bytes = machine.decompress(data, most)
    except zlib.error as error:
        raise BadStream(str(error)) from None
    return piece


class LibDeflate:
    """The same by libdeflate through ctypes, which writes into any buffer and releases the interpreter's lock.

    The `deflate` package brings the library along, but its own functions hold the lock and return fresh memory: two
    threads were no faster than one, and 67 MB took 113 ms in place of 82.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        size, pointer = ctypes.c_size_t, ctypes.c_void_p
        self._alloc: Any = library.libdeflate_alloc_decompressor
        self._alloc.restype, self._alloc.argtypes = pointer, ()
        self._free: Any = library.libdeflate_free_decompressor
        self._free.restype, self._free.argtypes = None, (pointer,)
        self._inflate: Any = library.libdeflate_deflate_decompress
        self._inflate.restype, self._inflate.argtypes = ctypes.c_int, (pointer, pointer, size, pointer, size, pointer)
        self._gunzip: Any = library.libdeflate_gzip_decompress_ex
        self._gunzip.restype = ctypes.c_int
        self._gunzip.argtypes = (pointer, pointer, size, pointer, size, pointer, pointer)
        self._crc32: Any = library.libdeflate_crc32
        self._crc32.restype, self._crc32.argtypes = ctypes.c_uint32, (ctypes.c_uint32, pointer, size)

    @contextlib.contextmanager
    def _decompressor(self) -> Iterator[int]:
        """One has state, so it is not shared between threads; to make one takes a microsecond."""
        address = self._alloc()
        if not address:
            raise MemoryError("libdeflate could not make a decompressor")
        try:
            yield address
        finally:
            self._free(address)

    def inflate(self, data: memoryview, out: Bytes) -> None:
        given = ctypes.c_size_t()
        with self._decompressor() as own:
            code = self._inflate(own, _address(data), data.nbytes, _address(out), out.nbytes, ctypes.byref(given))
        if code == _INSUFFICIENT_SPACE:
            raise BadStream("the stream gives more than it should")
        if code:
            raise BadStream("the stream is damaged")
        if given.value != out.nbytes:
            raise BadStream(f"the stream ended after {given.value} of {out.nbytes} bytes")

    def gunzip(self, data: memoryview, out: Bytes) -> None:
        taken, given = ctypes.c_size_t(), ctypes.c_size_t()
        done = 0
        while done < out.nbytes:
            if not any(data[:1]):  # the end, or the zeros that some tools pad with
                raise BadStream(f"the stream ended after {done} of {out.nbytes} bytes")
            rest = out[done:]
            places = _address(data), data.nbytes, _address(rest), rest.nbytes
            with self._decompressor() as own:
                code = self._gunzip(own, *places, ctypes.byref(taken), ctypes.byref(given))
            if code == _INSUFFICIENT_SPACE:  # more follows than is wanted: zlib can stop there
                return ZlibInflater().gunzip(data, rest)
            if code:
                raise BadStream(f"the stream is damaged, or its check sum is wrong, after {done} bytes")
            data, done = data[taken.value :], done + given.value
        return None

    def crc32(self, data: memoryview) -> int:
        return int(self._crc32(0, _address(data), data.nbytes)) if data.nbytes else 0


def _address(data: memoryview | Bytes) -> int:
    return np.frombuffer(data, np.uint8).ctypes.data if data.nbytes else 0


Inflater = ZlibInflater | LibDeflate


@functools.cache
def find_inflater() -> Inflater:
    """The library that the `deflate` package brings, else zlib."""
    try:
        spec = importlib.util.find_spec("deflate._deflate")
        if spec is not None and spec.origin:
            return LibDeflate(ctypes.CDLL(spec.origin))
    except (ImportError, OSError, AttributeError):  # not there, or without the functions we need
        pass
    return ZlibInflater()
