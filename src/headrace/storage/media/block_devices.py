"""The disks beneath a block device, from /sys: through partitions, device-mapper, md and loop devices.

What the kernel says there (Documentation/ABI/stable/sysfs-block): a folder per device, `partition` in that of a
partition, `dm/`, `md/` and `loop/` in those of stacked devices, and in `slaves/` a link to each device that one is
stacked on. `queue/rotational` is what a disk says of itself; virtual disks mostly leave it at the default of 1, so it
counts for real disks alone.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_DEEPEST = 16  # layers: a loop in the links of a broken tree must end


class Bus(enum.StrEnum):
    """How a disk is reached."""

    NVME = "nvme"
    SATA_OR_SAS = "scsi"
    USB = "usb"
    CARD = "mmc"
    VIRTUAL = "virtual"  # virtio, Xen, a hypervisor's SCSI disk: what is beneath is the host's
    NETWORK = "network"  # NVMe over fabrics, iSCSI, nbd, rbd, a cloud's volume
    MEMORY = "memory"  # zram, brd, pmem
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class BlockDevice:
    """A block device and what it lies on. `None`: the kernel does not say."""

    name: str
    layer: str  # "disk", "partition", "LVM", "crypt", "multipath", "device-mapper", "raid0", "bcache", "loop"
    detail: str = ""  # name of the volume, model of the disk
    bus: Bus = Bus.UNKNOWN  # of a disk
    is_rotational: bool | None = None
    queue_depth: int | None = None  # commands that the device takes at a time (SCSI, SATA)
    num_requests: int | None = None  # requests that the kernel queues for it
    scheduler: str | None = None
    read_ahead_kb: int | None = None
    backing_file: str | None = None  # of a loop device
    is_backing_cached: bool | None = None  # whether a loop device reads its file through the page cache
    beneath: tuple[BlockDevice, ...] = ()

    def disks(self) -> tuple[BlockDevice, ...]:
        """The devices at the bottom."""
        return tuple(disk for below in self.beneath for disk in below.disks()) if self.beneath else (self,)

    def walk(self) -> Iterator[BlockDevice]:
        """Go through the device and all beneath it, the upper ones first."""
        yield self
        for below in self.beneath:
            yield from below.walk()


def read_block_device(number: str, sys_root: Path = Path("/sys")) -> BlockDevice | None:
    """The device of a number such as "259:2"; None where /sys does not hold it (a container may hide it)."""
    link = sys_root / "dev/block" / number
    return _read(Path(os.path.realpath(link)), 0) if link.exists() else None


def find_block_device(name: str, sys_root: Path = Path("/sys")) -> BlockDevice | None:
    """The device of a name such as "nvme0n1p2" or "dm-0"."""
    link = sys_root / "class/block" / name.replace("/", "!")
    return _read(Path(os.path.realpath(link)), 0) if name and link.exists() else None


def _read(folder: Path, depth: int) -> BlockDevice:
    if (folder / "partition").exists():
        whole = _read(folder.parent, depth + 1)
        return BlockDevice(name=folder.name, layer="partition", beneath=(whole,))
    if (folder / "loop").is_dir():
        return _loop(folder)
    below = tuple(_read(slave, depth + 1) for slave in _slaves(folder)) if depth < _DEEPEST else ()
    layer, detail = _stacking(folder)
    if layer != "disk":
        return BlockDevice(
            name=folder.name, layer=layer, detail=detail, beneath=below, read_ahead_kb=_number(folder, "read_ahead_kb")
        )
    return _disk(folder)


def _stacking(folder: Path) -> tuple[str, str]:
    """What kind of device this is, and its name for people."""
    if (folder / "dm").is_dir():
        uuid, name = _text(folder / "dm/uuid"), _text(folder / "dm/name")
        kinds = {"LVM-": "LVM", "CRYPT-": "crypt", "mpath-": "multipath"}
        return next((kind for start, kind in kinds.items() if uuid.startswith(start)), "device-mapper"), name
    if (folder / "md").is_dir():
        return _text(folder / "md/level") or "md", f"{_text(folder / 'md/raid_disks') or '?'} disks"
    if (folder / "bcache").is_dir():
        return "bcache", ""
    return "disk", ""


def _loop(folder: Path) -> BlockDevice:
    direct = _text(folder / "loop/dio")
    return BlockDevice(
        name=folder.name,
        layer="loop",
        backing_file=_text(folder / "loop/backing_file") or None,
        is_backing_cached=None if direct not in ("0", "1") else direct == "0",
        read_ahead_kb=_number(folder, "read_ahead_kb"),
    )


def _disk(folder: Path) -> BlockDevice:
    model = _text(folder / "device/model")
    bus = _bus(folder, model)
    return BlockDevice(
        name=folder.name,
        layer="disk",
        detail=model,
        bus=bus,
        is_rotational=_is_rotational(folder) if bus in (Bus.SATA_OR_SAS, Bus.USB) else None,
        queue_depth=_int(_text(folder / "device/queue_depth")),
        num_requests=_number(folder, "nr_requests"),
        scheduler=_scheduler(folder),
        read_ahead_kb=_number(folder, "read_ahead_kb"),
    )


# Cloud volumes that come as NVMe disks say so in their model; what each cloud calls its local disks is not here.
_REMOTE_MODELS = ("Amazon Elastic Block Store", "nvme_card-pd", "MSFT NVMe Accelerator")
_VIRTUAL_VENDORS = ("QEMU", "VMware", "Msft", "Google", "DO", "ORACLE")


def _bus(folder: Path, model: str) -> Bus:
    name, place = folder.name, str(folder)
    if name.startswith("nvme"):
        # with the kernel's own multipath, `device` is the subsystem, and its controllers know how they are reached
        places = [folder / "device/transport", *sorted((folder / "device").glob("nvme*/transport"))]
        transports = {_text(place) for place in places} - {""}
        is_remote = bool(transports - {"pcie"}) or model.startswith(_REMOTE_MODELS)
        return Bus.NETWORK if is_remote else Bus.NVME
    if name.startswith(("nbd", "rbd", "drbd")):
        return Bus.NETWORK
    if name.startswith(("zram", "ram", "pmem")):
        return Bus.MEMORY
    if name.startswith("mmcblk"):
        return Bus.CARD
    if name.startswith(("vd", "xvd")) or "/virtio" in place:
        return Bus.VIRTUAL
    if name.startswith("sd"):
        if "/session" in place or "/rport-" in place:  # iSCSI, Fibre Channel
            return Bus.NETWORK
        vendor = _text(folder / "device/vendor")
        if vendor in _VIRTUAL_VENDORS or model.startswith(("QEMU", "VBOX", "VMware")):
            return Bus.VIRTUAL
        return Bus.USB if "/usb" in place else Bus.SATA_OR_SAS
    return Bus.UNKNOWN


def _slaves(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder / "slaves"))
    except OSError:
        return []
    return [Path(os.path.realpath(folder / "slaves" / name)) for name in names]


def _is_rotational(folder: Path) -> bool | None:
    return {"0": False, "1": True}.get(_text(folder / "queue/rotational"))


def _scheduler(folder: Path) -> str | None:
    """The one in brackets: `none [mq-deadline] kyber`."""
    text = _text(folder / "queue/scheduler")
    _, _, rest = text.partition("[")
    return rest.partition("]")[0] or text or None


def _number(folder: Path, name: str) -> int | None:
    return _int(_text(folder / "queue" / name))


def _int(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
