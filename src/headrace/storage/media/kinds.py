"""What is under a path: its mount, the layers beneath it, and how many reads at a time to begin with."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.model import Text, format_seconds

from .block_devices import BlockDevice, Bus, find_block_device, read_block_device
from .file_systems import describe_file_system
from .media import DEEPEST_START, Medium, slowest
from .mounts import Mount, mount_id_of, mount_of, read_mounts
from .remembered import recall

_STRIPED = ("raid0", "raid10", "raid4", "raid5", "raid6", "raid1")  # reads of these go to several disks at a time
_DEEPEST = 8  # an overlay on a loop device on an overlay …
# Files that a container's runtime binds into each container from beside its own images.
_OF_THE_RUNTIME = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf")


@dataclass(frozen=True, kw_only=True)
class StorageKind:
    """What a path lies on. Found by looking, not by reading data: it takes well under a millisecond."""

    medium: Medium
    layers: tuple[str, ...]  # from the file system down to the disk or the server
    evidence: tuple[str, ...]  # what the kernel says, as it says it
    starting_depth: int
    depth_reason: Text
    unknown: tuple[Text, ...] = ()  # what could not be found out, and why
    disks: tuple[BlockDevice, ...] = ()
    device: str = ""  # "259:2", or the source of a file system that is on no device
    is_depth_measured: bool = False  # by an earlier probe that was remembered
    cached_backing_files: tuple[str, ...] = ()  # of loop devices that read through the page cache

    @property
    def name(self) -> str:
        """The layers in one line.

        >>> kind_of("/proc").name
        'proc'
        """
        return " → ".join(self.layers)

    @property
    def is_guessed(self) -> bool:
        """Whether what is beneath was taken from a hint."""
        return any(layer.endswith("?") for layer in self.layers)

    def __str__(self) -> str:
        return f"{self.medium.label.en}: {self.name}"


def kind_of(
    path: str | os.PathLike[str],
    *,
    proc_root: Path = Path("/proc"),
    sys_root: Path = Path("/sys"),
    use_remembered: bool = True,
) -> StorageKind:
    """Return what is under a path, and a depth to begin with.

    Never raises for a path that cannot be looked at: then the medium is `UNKNOWN`, and `unknown` says why. The depth
    is a place to start from, unless a probe of this storage was remembered: then it is the one that was measured.
    """
    kind = _Looking(proc_root, sys_root).look(os.path.realpath(path), 0)
    kept = recall(kind) if use_remembered else None
    if kept is None:
        return kind
    facts = {"age": format_seconds(kept.age_s()), "rate": f"{kept.bytes_per_s / 1e6:.0f} MB/s"}
    return replace(kind, starting_depth=kept.io_depth, depth_reason=_REMEMBERED.filled(**facts), is_depth_measured=True)


class _Looking:
    """One look at the machine: its mounts are read once."""

    def __init__(self, proc_root: Path, sys_root: Path) -> None:
        self._proc_root, self._sys_root = proc_root, sys_root
        self._mounts = read_mounts(proc_root)

    def look(self, path: str, depth: int) -> StorageKind:
        mount = mount_of(path, self._mounts, mount_id=mount_id_of(path, self._proc_root))
        if mount is None or depth > _DEEPEST:
            return _unknown((), (), Text("the table of mounts does not say", "挂载表里查不到"))
        evidence = f"mountinfo: {mount.device} {mount.fs_type} {mount.source} on {mount.mount_point}"
        if mount.is_bind:
            evidence += f", a bind mount of {mount.root}"
        told = describe_file_system(mount)
        if told is not None:
            layers = (f"{told.name} ({' '.join(told.facts)})" if told.facts else told.name,)
            hidden = (_ZFS_HIDES,) if told.medium is Medium.ZFS else ()
            return _of(told.medium, layers, (evidence,), device=mount.source, unknown=hidden)
        if mount.fs_type == "overlay":
            return self._overlay(path, mount, evidence, depth)
        return self._on_devices(mount, evidence, depth)

    def _overlay(self, path: str, mount: Mount, evidence: str, depth: int) -> StorageKind:
        inside = os.path.relpath(path, mount.mount_point)
        layers = [layer for layer in mount.layers() if os.path.isabs(layer)]
        holding = next((layer for layer in layers if os.path.lexists(os.path.join(layer, inside))), None)
        if holding is not None:
            below = self.look(os.path.realpath(os.path.join(holding, inside)), depth + 1)
            return replace(
                below, layers=("overlay", *below.layers), evidence=(evidence, f"layer: {holding}", *below.evidence)
            )
        # A container sees the names of the host's folders, not the folders.
        for beside in self._mounts:
            if beside.mount_point in _OF_THE_RUNTIME and beside.is_bind and not beside.device.startswith("0:"):
                below = self._on_devices(beside, f"{beside.mount_point} is on {beside.device} {beside.source}", depth)
                return replace(
                    below,
                    layers=("overlay", *(f"{layer}?" for layer in below.layers)),
                    evidence=(evidence, *below.evidence),
                    unknown=(_PROBABLY_BESIDE.filled(file=beside.mount_point), *below.unknown),
                )
        return _unknown(("overlay",), (evidence,), _LAYERS_HIDDEN)

    def _on_devices(self, mount: Mount, evidence: str, depth: int) -> StorageKind:
        devices = self._devices(mount)
        layers: tuple[str, ...] = (mount.fs_type,)
        if not devices:
            is_pseudo = mount.device.startswith("0:") and not mount.source.startswith("/dev/")
            why = _ON_NO_DEVICE if is_pseudo else _DEVICE_HIDDEN.filled(device=mount.device)
            return _unknown(layers, (evidence,), why, device=mount.device)
        backing = [below for device in devices for below in device.walk() if below.layer == "loop"]
        if backing:
            return self._on_a_file(backing[0], layers, evidence, devices[0], depth)
        disks = tuple(disk for device in devices for disk in device.disks())
        medium = slowest([_medium_of(disk) for disk in disks])
        if len(devices) > 1:
            layers += (f"{len(devices)} devices",)
        layers += tuple(_layer_name(device) for device in _trunk(devices[0]))
        hidden_disks = _unseen(medium)
        kind = _of(
            medium,
            layers,
            (evidence, *(fact for disk in disks for fact in _disk_facts(disk))),
            device=mount.device,
            disks=disks,
            unknown=hidden_disks,
        )
        return _spread(kind, devices)

    def _on_a_file(
        self, loop: BlockDevice, layers: tuple[str, ...], evidence: str, top: BlockDevice, depth: int
    ) -> StorageKind:
        """A loop device: what counts is what its file lies on."""
        path = loop.backing_file or ""
        layers += tuple(_layer_name(device) for device in _trunk(top))
        if not os.path.exists(path):
            told = (evidence, f"loop/backing_file={path or '?'}")
            return _unknown(layers, told, _FILE_HIDDEN.filled(name=loop.name))
        below = self.look(os.path.realpath(path), depth + 1)
        cached = (path,) if loop.is_backing_cached is not False else ()
        return replace(
            below,
            layers=(*layers, *below.layers),
            evidence=(evidence, f"loop/backing_file={path}", *below.evidence),
            cached_backing_files=(*cached, *below.cached_backing_files),
        )

    def _devices(self, mount: Mount) -> list[BlockDevice]:
        if not mount.device.startswith("0:"):
            device = read_block_device(mount.device, self._sys_root)
            return [] if device is None else [device]
        # btrfs and the like have a number of their own; the source names one of their devices
        name = os.path.basename(os.path.realpath(mount.source)) if mount.source.startswith("/dev/") else ""
        first = find_block_device(name, self._sys_root) or self._mapped(os.path.basename(mount.source))
        if first is None:
            return []
        for folder in sorted(self._sys_root.glob("fs/btrfs/*/devices")):
            names = sorted(os.listdir(folder))
            if first.name in names:
                found = (find_block_device(each, self._sys_root) for each in names)
                return [device for device in found if device is not None]
        return [first]

    def _mapped(self, name: str) -> BlockDevice | None:
        """The device of a name in /dev/mapper, where /dev does not show it."""
        for folder in sorted(self._sys_root.glob("class/block/dm-*")):
            device = find_block_device(folder.name, self._sys_root)
            if name and device is not None and device.detail == name:
                return device
        return None


_REMEMBERED = Text("measured {age} ago: {rate}", "{age} 前实测：{rate}")
_ON_NO_DEVICE = Text("it is on no block device", "它不在任何块设备上")
_DEVICE_HIDDEN = Text("/sys does not show device {device}", "/sys 里看不到设备 {device}")
_FILE_HIDDEN = Text("the file behind {name} is not to be seen here", "这里看不到 {name} 背后的文件")
_ZFS_HIDES = Text("ZFS hides its disks: `zpool status` shows them", "ZFS 隐藏了底层磁盘，可用 `zpool status` 查看")
_LAYERS_HIDDEN = Text(
    "the overlay's folders are the host's and not to be seen from inside this container",
    "overlay 的各层目录在宿主机上，从这个容器里看不到",
)
_PROBABLY_BESIDE = Text(
    "the overlay's folders are not to be seen from inside this container; what is beneath it is taken from {file}, "
    "which a container's runtime keeps beside its images: probable, not certain",
    "从容器里看不到 overlay 的各层目录；下层设备是根据 {file} 推断的"
    "（容器运行时通常把它和镜像放在一起）：很可能如此，但不确定",
)
_HOST_HIDDEN = Text(
    "what the virtual disk lies on is the host's to know; what it says of rotation means nothing",
    "虚拟磁盘背后是什么，只有宿主机知道；它自报的“是否旋转”不可信",
)


def _medium_of(disk: BlockDevice) -> Medium:
    if disk.bus in (Bus.SATA_OR_SAS, Bus.USB):
        return {True: Medium.HDD, False: Medium.SSD, None: Medium.UNKNOWN}[disk.is_rotational]
    return {
        Bus.NVME: Medium.NVME,
        Bus.CARD: Medium.SSD,
        Bus.VIRTUAL: Medium.VIRTUAL_DISK,
        Bus.NETWORK: Medium.NETWORK_DISK,
        Bus.MEMORY: Medium.MEMORY,
    }.get(disk.bus, Medium.UNKNOWN)


def _of(
    medium: Medium,
    layers: tuple[str, ...],
    evidence: tuple[str, ...],
    *,
    device: str = "",
    disks: tuple[BlockDevice, ...] = (),
    unknown: tuple[Text, ...] = (),
) -> StorageKind:
    return StorageKind(
        medium=medium,
        layers=layers,
        evidence=evidence,
        starting_depth=medium.start.depth,
        depth_reason=medium.start.reason,
        unknown=unknown,
        disks=disks,
        device=device,
    )


def _unknown(layers: tuple[str, ...], evidence: tuple[str, ...], why: Text, *, device: str = "") -> StorageKind:
    return _of(Medium.UNKNOWN, layers, evidence, device=device, unknown=(why,))


def _unseen(medium: Medium) -> tuple[Text, ...]:
    return (_HOST_HIDDEN,) if medium is Medium.VIRTUAL_DISK else ()


def _spread(kind: StorageKind, devices: list[BlockDevice]) -> StorageKind:
    """Several disks that reads are spread over take as many times more."""
    stripes = [device for device in devices[0].walk() if device.layer in _STRIPED] if len(devices) == 1 else []
    num_disks = len({disk.name for disk in stripes[0].disks()}) if stripes else 1
    if num_disks < 2:
        return kind
    depth = min(DEEPEST_START, kind.starting_depth * num_disks)
    times = Text("{reason}; {level} of {num} disks", "{reason}；{num} 块盘组成 {level}")
    return replace(
        kind,
        starting_depth=depth,
        depth_reason=Text(
            times.en.format(reason=kind.depth_reason.en, level=stripes[0].layer, num=num_disks),
            times.zh.format(reason=kind.depth_reason.zh, level=stripes[0].layer, num=num_disks),
        ),
    )


def _trunk(device: BlockDevice) -> list[BlockDevice]:
    """The layers worth a name, from the top; where a device lies on several, the first one stands for all."""
    trunk = [device]
    while trunk[-1].beneath:
        trunk.append(trunk[-1].beneath[0])
    return [each for each in trunk if each.layer != "partition"]


def _layer_name(device: BlockDevice) -> str:
    if device.layer == "disk":
        return f"{device.name} ({device.detail})" if device.detail else device.name
    return " ".join(filter(None, (device.layer, device.detail or device.name)))


def _disk_facts(disk: BlockDevice) -> tuple[str, ...]:
    told = {
        "rotational": None if disk.is_rotational is None else int(disk.is_rotational),
        "queue_depth": disk.queue_depth,
        "nr_requests": disk.num_requests,
        "scheduler": disk.scheduler,
        "read_ahead_kb": disk.read_ahead_kb,
    }
    facts = " ".join(f"{name}={value}" for name, value in told.items() if value is not None)
    return (f"{disk.name}: {disk.bus} {facts}".strip(),)
