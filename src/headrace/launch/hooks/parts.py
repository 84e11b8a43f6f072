"""What happens inside a sample: calls that are known to read, decode or transform, stages that are named, shards.

A package is never imported for this: it is looked at when the script has imported it. Time that a call spends without a
core is told apart by the clock, so a decoder that reads its file itself belongs here, too.
"""

import functools
import os
import sys
from collections.abc import Mapping
from threading import get_ident
from types import ModuleType
from typing import Any

from headrace.model import EventKind, watch_stages
from headrace.signals import PartFrame, current_sample

from ..tape import now, tape
from .wrapping import Inside, instead_of, replace_part, timed_part

_STAGE, _DECODE = int(EventKind.STAGE), int(EventKind.DECODE)
_SHARD_OPEN = int(EventKind.SHARD_OPEN)
_MOST_NAMES = 64  # a process may open thousands of shards: their names would fill its lane
_in_archive: Inside = set()
_named_shards: set[str] = set()

# module: {what in it: what it is}
_PARTS: Mapping[str, Mapping[str, str]] = {
    "PIL.AvifImagePlugin": {"AvifImageFile.load": "decode Pillow"},
    "PIL.Image": {
        "open": "decode Pillow",
        **{f"Image.{name}": f"transform Pillow {name}" for name in ("convert", "resize", "rotate", "transform")},
    },
    "PIL.TiffImagePlugin": {"TiffImageFile.load": "decode Pillow"},
    "PIL.WebPImagePlugin": {"WebPImageFile.load": "decode Pillow"},
    "cv2": {
        "imread": "decode cv2.imread",
        "imdecode": "decode cv2.imdecode",
        **{
            name: f"transform cv2.{name}"
            for name in ("GaussianBlur", "cvtColor", "remap", "resize", "warpAffine", "warpPerspective")
        },
    },
    "h5py._hl.dataset": {"Dataset.__getitem__": "read h5py", "Dataset.read_direct": "read h5py"},
    "nibabel.arrayproxy": {
        f"ArrayProxy.{name}": "decode nibabel" for name in ("__array__", "__getitem__", "get_unscaled")
    },
    "nibabel.loadsave": {"load": "decode nibabel"},
    "numpy": {
        "fromfile": "read numpy.fromfile",
        "load": "decode numpy.load",
        "lib.npyio.NpzFile.__getitem__": "decode numpy.load",
    },
    "scipy.ndimage._filters": {"gaussian_filter": "transform scipy.ndimage.gaussian_filter"},
    "scipy.ndimage._interpolation": {
        name: f"transform scipy.ndimage.{name}" for name in ("affine_transform", "map_coordinates", "rotate", "zoom")
    },
    "simplejpeg": {"decode_jpeg": "decode simplejpeg"},
    "soundfile": {"read": "decode soundfile"},
    "torch": {"load": "decode torch.load"},
    "torchvision.io.image": {
        **dict.fromkeys(("decode_image", "decode_jpeg", "decode_png", "read_image"), "decode torchvision.io"),
        "read_file": "read torchvision.io",
    },
}
# Python's own: torch imports them, and our own modules did before anybody could be told
_PYTHONS_OWN: Mapping[str, Mapping[str, str]] = {
    "pathlib": {"Path.read_bytes": "read Path.read_bytes", "Path.read_text": "read Path.read_text"},
    "tarfile": {"_FileInFile.readinto": "read tarfile"},
}
# module: calls whose first argument is the transform
_CALLS_OF: Mapping[str, tuple[str, ...]] = {
    "albumentations.core.composition": ("Compose.__call__",),
    "albumentations.core.transforms_interface": ("BasicTransform.__call__",),
    "monai.transforms.compose": ("Compose.__call__",),
    "monai.transforms.transform": ("apply_transform",),
}
_TORCHVISION = frozenset({"torchvision.transforms.transforms", "torchvision.transforms.v2._transform"})
_PILLOW_FILES = "PIL.ImageFile"
MODULES = frozenset({*_PARTS, *_CALLS_OF, *_TORCHVISION, _PILLOW_FILES})
_BYTES_OF_MODE = {"L": 1, "P": 1, "RGB": 3, "RGBA": 4, "CMYK": 4, "YCbCr": 3, "F": 4, "I": 4, "I;16": 2}


def transform_name(transform: object) -> str:
    return f"transform {type(transform).__name__}"


def time_parts(module: ModuleType) -> None:
    name = module.__name__
    for path, part in _PARTS.get(name, {}).items():
        replace_part(module, path, part)
    for path in _CALLS_OF.get(name, ()):
        replace_part(module, path, transform_name)
    if name == _PILLOW_FILES:
        _time_pillow(module)
    if name in _TORCHVISION:
        _time_torchvision(module)


def time_own_parts(_dataloader: ModuleType) -> None:
    for name, parts in _PYTHONS_OWN.items():
        for path, part in parts.items():
            replace_part(sys.modules.get(name), path, part)


def _time_pillow(files: Any) -> None:
    """Time the `load` of picture files, which Pillow calls before almost anything: the first reads and decodes."""
    original = files.ImageFile.load
    timed = timed_part(original, "decode Pillow")

    @instead_of(files.ImageFile, "load")
    def load(self: Any) -> Any:
        sample = current_sample.sample
        if sample is None or not self.tile:
            return original(self)
        result = timed(self)
        if not self.tile:
            sample.parts["decode Pillow"][1] += self.width * self.height * _BYTES_OF_MODE.get(self.mode, 0)
        return result


def _time_torchvision(module: ModuleType) -> None:
    """Time each transform by its class.

    TorchScript compiles a transform's `forward`, so that stays as it is: what is timed is the call. Most classes have
    theirs from `torch.nn.Module`, and get one of their own.
    """
    from torch.compiler import is_compiling
    from torch.nn import Module

    for cls in list(vars(module).values()):
        if not isinstance(cls, type) or cls.__module__ != module.__name__:
            continue
        if "__call__" in vars(cls) or (issubclass(cls, Module) and cls.__call__ is Module.__call__):
            replace_part(cls, "__call__", transform_name, is_compiling=is_compiling)


class _StageWatcher:
    """Writes each stage with all that is inside it, and counts its own time as a part of the sample in hand."""

    def enter(self) -> PartFrame | None:
        sample = current_sample.sample
        return None if sample is None else sample.enter()

    def leave(
        self, entered: PartFrame | None, name: str, start_ns: int, elapsed_ns: int, nbytes: int, *, is_recorded: bool
    ) -> None:
        if not is_recorded:
            kind = _DECODE if name.endswith(" decode") else _STAGE  # our codecs name theirs so
            tape.write(kind, start_ns, elapsed_ns, nbytes, tape.name(name))
        sample = current_sample.sample
        # a generator may leave a stage in another sample than it entered it in: that is no part of this one
        if entered is not None and sample is not None and entered[0] >= sample.start_ns:
            sample.leave(entered, "stage " + name, nbytes)


def time_stages() -> None:
    """Write the stages that a data set names, whichever loader fetches: `with headrace.stage("volume process"):`."""
    watch_stages(_StageWatcher())


def time_archives(tarfile: ModuleType) -> None:
    """Time `tarfile.open`, by both of its names; writing an archive is left alone."""
    original = tarfile.TarFile.open.__func__

    @functools.wraps(original)
    def open_archive(cls: Any, name: Any = None, mode: str = "r", fileobj: Any = None, *args: Any, **more: Any) -> Any:
        if get_ident() in _in_archive or not mode.startswith("r"):
            return original(cls, name, mode, fileobj, *args, **more)
        _in_archive.add(get_ident())
        is_archive = True
        start = now()
        try:
            return original(cls, name, mode, fileobj, *args, **more)
        except tarfile.ReadError:
            is_archive = False  # some ask `tarfile.is_tarfile` of every file
            raise
        finally:
            _in_archive.discard(get_ident())
            if is_archive:
                number = _number_of_shard(name or getattr(fileobj, "name", None))
                tape.write(_SHARD_OPEN, start, now() - start, 0, number)

    tarfile.TarFile.open = classmethod(open_archive)
    tarfile.open = tarfile.TarFile.open  # type: ignore[attr-defined]


def _number_of_shard(path: Any) -> int:
    """The number of a shard's name; 0 for one without a name, and for those that come after the first ones."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        return 0
    text = os.path.basename(os.fsdecode(path))
    if len(_named_shards) < _MOST_NAMES:
        _named_shards.add(text)
    return tape.name(text) if text in _named_shards else 0
