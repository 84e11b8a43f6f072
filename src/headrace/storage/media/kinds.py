"""What is under a path: its mount, the layers beneath it down to the disk or the server, and a depth to begin with.

Found by looking, not by reading data: in the kernel's table of mounts (/proc/self/mountinfo, see proc(5)) and in /sys
(Documentation/ABI/stable/sysfs-block), where each block device is a folder: `partition` in that of a partition, `dm/`,
`md/` and `loop/` in those of stacked devices, and in `slaves/` a link to each device that one is stacked on.
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from headrace.model import Text, format_seconds

from .remembered import recall

# ------------------------------------------------------------------ the kinds


class Medium(enum.StrEnum):
    """What bytes lie on, as far as it matters for reading them."""

    NVME = "nvme"
    SSD = "ssd"
    HDD = "hdd"
    VIRTUAL_DISK = "virtual_disk"
    NETWORK_DISK = "network_disk"
    NFS = "nfs"
    SMB = "smb"
    LUSTRE = "lustre"
    GPFS = "gpfs"
    BEEGFS = "beegfs"
    CEPHFS = "cephfs"
    PARALLEL = "parallel"  # another cluster file system
    OBJECT_STORE = "object_store"  # through FUSE: a bucket shown as files
    SSHFS = "sshfs"
    FUSE = "fuse"
    SHARED_FOLDER = "shared_folder"  # 9p, virtiofs, vboxsf: a folder of the host
    MEMORY = "memory"
    ZFS = "zfs"
    UNKNOWN = "unknown"

    @property
    def label(self) -> Text:
        """What people call it."""
        return _ABOUT[self].label

    @property
    def is_network(self) -> bool:
        """Whether reads go over a network, so that a server caches them and others share it."""
        return self in _NETWORK


class _About(NamedTuple):
    """What people call a medium, and how many reads at a time it is worth to begin with.

    The depths are places to start from, not measurements: `headrace storage PATH` measures. Whoever sees a depth should
    be able to judge it, so its reason stands beside it.
    """

    label: Text
    depth: int
    reason: Text


_OF_A_SERVER = Text(
    "each read waits for a server: only many at a time fill the network",
    "每次读取都要等服务器往返，只有并发多了才能用满带宽",
)
_ABOUT = {
    Medium.NVME: _About(
        Text("NVMe", "NVMe 固态盘"), 32, Text("NVMe serves many reads in parallel", "NVMe 能并行处理大量读取"),
    ),
    Medium.SSD: _About(
        Text("SSD", "SATA/SAS 固态盘"),
        16, Text("SATA takes 32 commands at a time; half of them", "SATA 最多同时接 32 条命令，取一半"),
    ),
    Medium.HDD: _About(
        Text("hard disk", "机械硬盘"),
        2, Text("one head: more readers only make it seek", "只有一组磁头，读者越多，寻道越多"),
    ),
    Medium.VIRTUAL_DISK: _About(
        Text("virtual disk", "虚拟磁盘"),
        16, Text("the host's disk is not to be seen; most take 16", "看不到宿主机的磁盘，多数能接 16 个并发"),
    ),
    Medium.NETWORK_DISK: _About(Text("network disk", "网络块设备"), 32, _OF_A_SERVER),
    Medium.NFS: _About(Text("NFS", "NFS 网络文件系统"), 16, _OF_A_SERVER),
    Medium.SMB: _About(Text("SMB share", "SMB 共享"), 8, _OF_A_SERVER),
    Medium.LUSTRE: _About(
        Text("Lustre", "Lustre 并行文件系统"),
        32, Text("several servers, 8 requests in flight to each by default", "多台服务器，默认每台 8 个在途请求"),
    ),
    Medium.GPFS: _About(
        Text("GPFS (Storage Scale)", "GPFS（Storage Scale）并行文件系统"),
        32, Text("blocks lie on several servers", "数据块分布在多台服务器上"),
    ),
    Medium.BEEGFS: _About(
        Text("BeeGFS", "BeeGFS 并行文件系统"), 32, Text("chunks lie on several servers", "数据条带分布在多台服务器上"),
    ),
    Medium.CEPHFS: _About(
        Text("CephFS", "CephFS 分布式文件系统"), 32, Text("objects lie on several servers", "对象分布在多台服务器上"),
    ),
    Medium.PARALLEL: _About(Text("cluster file system", "集群文件系统"), 32, _OF_A_SERVER),
    Medium.OBJECT_STORE: _About(
        Text("object store through FUSE", "经 FUSE 挂载的对象存储"),
        64, Text("a request takes tens of milliseconds, whatever its size", "每个请求都要几十毫秒，与大小无关"),
    ),
    Medium.SSHFS: _About(
        Text("sshfs", "sshfs"), 8, Text("one connection, one process that encrypts", "只有一条连接，由一个进程加密"),
    ),
    Medium.FUSE: _About(
        Text("FUSE", "FUSE 用户态文件系统"),
        8, Text("one process stands between and may be single-threaded", "中间隔着一个进程，可能是单线程的"),
    ),
    Medium.SHARED_FOLDER: _About(
        Text("folder of the host", "宿主机共享目录"),
        8, Text("the hypervisor carries each request over", "每个请求都由虚拟机监控器转交"),
    ),
    Medium.MEMORY: _About(
        Text("memory", "内存"),
        4, Text("reading is copying: a few readers fill the memory bus", "读取就是拷贝，几个读者就能占满内存带宽"),
    ),
    Medium.ZFS: _About(
        Text("ZFS", "ZFS"), 16, Text("the disks of the pool are not to be seen", "看不到存储池里的磁盘"),
    ),
    Medium.UNKNOWN: _About(
        Text("unknown storage", "未知存储"), 8, Text("nothing is known about it", "对它一无所知"),
    ),
}  # fmt: skip
_NETWORK = frozenset(
    {
        *(Medium.NETWORK_DISK, Medium.NFS, Medium.SMB, Medium.LUSTRE, Medium.GPFS, Medium.BEEGFS, Medium.CEPHFS),
        *(Medium.PARALLEL, Medium.OBJECT_STORE, Medium.SSHFS),
    }
)
# Of several disks under one file system, the first of these sets the pace.
_SLOWEST_FIRST = (
    *(Medium.HDD, Medium.NETWORK_DISK, Medium.UNKNOWN, Medium.VIRTUAL_DISK, Medium.SSD, Medium.NVME, Medium.MEMORY),
)
_FILE_SYSTEMS = {
    Medium.NFS: "nfs nfs4",
    Medium.SMB: "cifs smb3",
    Medium.LUSTRE: "lustre",
    Medium.GPFS: "gpfs",
    Medium.BEEGFS: "beegfs",
    Medium.CEPHFS: "ceph",
    Medium.PARALLEL: "pvfs2 panfs wekafs glusterfs daos afs",  # pvfs2: OrangeFS
    Medium.SHARED_FOLDER: "9p virtiofs vboxsf",
    Medium.MEMORY: "tmpfs ramfs devtmpfs hugetlbfs",
    Medium.ZFS: "zfs",
}
_FUSE_PROGRAMS = {
    Medium.OBJECT_STORE: "s3fs gcsfuse goofys mountpoint-s3 juicefs rclone blobfuse blobfuse2 ossfs cosfs obsfs "
    "geesefs alluxio-fuse",
    Medium.SSHFS: "sshfs",
    Medium.PARALLEL: "glusterfs seaweedfs mfs dfuse",  # mfs: MooseFS, dfuse: DAOS
    Medium.CEPHFS: "ceph ceph-fuse",
}
_BY_TYPE = {name: medium for medium, names in _FILE_SYSTEMS.items() for name in names.split()}
_BY_FUSE_PROGRAM = {name: medium for medium, names in _FUSE_PROGRAMS.items() for name in names.split()}
# Which options of a mount say something about reading.
_TELLING = ("vers", "proto", "nconnect", "rsize", "cache", "trans", "msize", "max_read", "flock", "noac", "lookupcache")

_STRIPED = ("raid0", "raid10", "raid4", "raid5", "raid6", "raid1")  # reads of these go to several disks at a time
_DEEPEST_START = 128
_MOST_LAYERS = 8  # an overlay on a loop device on an overlay …
# Files that a container's runtime binds into each container from beside its own images.
_OF_THE_RUNTIME = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf")

_REMEMBERED = Text("measured {age} ago: {rate}", "{age} 前实测：{rate}")
_NOT_IN_THE_TABLE = Text("the table of mounts does not say", "挂载表里查不到")
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


# ------------------------------------------------------------------ a path


@dataclass(frozen=True, kw_only=True)
class StorageKind:
    """What a path lies on."""

    medium: Medium
    layers: tuple[str, ...] = ()  # from the file system down to the disk or the server
    evidence: tuple[str, ...] = ()  # what the kernel says, as it says it
    starting_depth: int
    depth_reason: Text
    unknown: tuple[Text, ...] = ()  # what could not be found out, and why
    disks: tuple[str, ...] = ()
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

    @property
    def is_fuse(self) -> bool:
        """Whether a program of this machine answers the reads."""
        return any(layer.startswith("FUSE") for layer in self.layers)

    def __str__(self) -> str:
        return f"{self.medium.label.en}: {self.name}"

    def _above(self, *layers: str, evidence: tuple[str, ...]) -> StorageKind:
        """The same with other layers on top."""
        return replace(self, layers=(*layers, *self.layers), evidence=(*evidence, *self.evidence))


def kind_of(
    path: str | os.PathLike[str],
    *,
    proc_root: Path = Path("/proc"),
    sys_root: Path = Path("/sys"),
    use_remembered: bool = True,
) -> StorageKind:
    """Return what is under a path, and a depth to begin with; it takes well under a millisecond.

    Never raises for a path that cannot be looked at: then the medium is `UNKNOWN`, and `unknown` says why. The depth
    is a place to start from, unless a probe of this storage was remembered: then it is the one that was measured.
    """
    kind = _Look(proc_root, sys_root).at(os.path.realpath(path), 0)
    kept = recall(kind) if use_remembered else None
    if kept is None:
        return kind
    reason = _REMEMBERED.filled(age=format_seconds(kept.age_s()), rate=f"{kept.bytes_per_s / 1e6:.0f} MB/s")
    return replace(kind, starting_depth=kept.io_depth, depth_reason=reason, is_depth_measured=True)


class StartingDepth(NamedTuple):
    """Reads in flight to begin with; 0: reading ahead brings nothing there."""

    depth: int
    reason: str


def starting_depth(path: str) -> StartingDepth:
    """What fits the storage under a path; measured afterwards, while it runs."""
    kind = kind_of(path)
    if kind.medium is Medium.MEMORY:
        return StartingDepth(0, f"{kind}: there is nothing to wait for")
    return StartingDepth(max(1, kind.starting_depth), f"{kind}")


class _Look:
    """One look at the machine: its mounts are read once."""

    def __init__(self, proc_root: Path, sys_root: Path) -> None:
        self._proc_root, self._sys_root = proc_root, sys_root
        self._mounts = read_mounts(proc_root)

    def at(self, path: str, depth: int) -> StorageKind:
        mount = mount_of(path, self._mounts, mount_id=_mount_id_of(path, self._proc_root))
        if mount is None or depth > _MOST_LAYERS:
            return _kind(Medium.UNKNOWN, unknown=(_NOT_IN_THE_TABLE,))
        evidence = f"mountinfo: {mount.device} {mount.fs_type} {mount.source} on {mount.mount_point}"
        if mount.is_bind:
            evidence += f", a bind mount of {mount.root}"
        if mount.fs_type == "overlay":
            return self._on_overlay(path, mount, evidence, depth)
        medium, name = _file_system(mount)
        if medium is None:
            return self._on_devices(mount, evidence, depth)
        hidden = (_ZFS_HIDES,) if medium is Medium.ZFS else ()
        return _kind(medium, layers=(name,), evidence=(evidence,), device=mount.source, unknown=hidden)

    def _on_overlay(self, path: str, mount: Mount, evidence: str, depth: int) -> StorageKind:
        inside = os.path.relpath(path, mount.mount_point)
        for layer in filter(os.path.isabs, mount.layers()):
            if os.path.lexists(os.path.join(layer, inside)):
                below = self.at(os.path.realpath(os.path.join(layer, inside)), depth + 1)
                return below._above("overlay", evidence=(evidence, f"layer: {layer}"))
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
        return _kind(Medium.UNKNOWN, layers=("overlay",), evidence=(evidence,), unknown=(_LAYERS_HIDDEN,))

    def _on_devices(self, mount: Mount, evidence: str, depth: int) -> StorageKind:
        devices = self._devices(mount)
        if not devices:
            is_pseudo = mount.device.startswith("0:") and not mount.source.startswith("/dev/")
            why = _ON_NO_DEVICE if is_pseudo else _DEVICE_HIDDEN.filled(device=mount.device)
            layers = (mount.fs_type,)
            return _kind(Medium.UNKNOWN, layers=layers, evidence=(evidence,), device=mount.device, unknown=(why,))
        several = (f"{len(devices)} devices",) if len(devices) > 1 else ()
        layers = (mount.fs_type, *several, *devices[0].layer_names())
        loop = next((each for device in devices for each in device.walk() if each.layer == "loop"), None)
        if loop is not None:
            return self._on_a_file(loop, layers, evidence, depth)
        disks = [each for device in devices for each in device.walk() if not each.beneath]
        medium = min((disk.medium for disk in disks), key=_SLOWEST_FIRST.index)
        kind = _kind(
            medium,
            layers=layers,
            evidence=(evidence, *(f"{disk.name}: {disk.facts}" for disk in disks)),
            device=mount.device,
            disks=tuple(disk.name for disk in disks),
            unknown=(_HOST_HIDDEN,) if medium is Medium.VIRTUAL_DISK else (),
        )
        return _spread(kind, devices[0]) if len(devices) == 1 else kind

    def _on_a_file(self, loop: BlockDevice, layers: tuple[str, ...], evidence: str, depth: int) -> StorageKind:
        """A loop device: what counts is what its file lies on."""
        told = (evidence, f"loop/backing_file={loop.backing_file or '?'}")
        if not os.path.exists(loop.backing_file):
            hidden = _FILE_HIDDEN.filled(name=loop.name)
            return _kind(Medium.UNKNOWN, layers=layers, evidence=told, unknown=(hidden,))
        below = self.at(os.path.realpath(loop.backing_file), depth + 1)._above(*layers, evidence=told)
        cached = (loop.backing_file,) if loop.is_backing_cached else ()
        return replace(below, cached_backing_files=(*cached, *below.cached_backing_files))

    def _devices(self, mount: Mount) -> list[BlockDevice]:
        if not mount.device.startswith("0:"):
            device = _device_at(self._sys_root / "dev/block" / mount.device)
            return [] if device is None else [device]
        # btrfs and the like have a number of their own; the source names one of their devices
        name = os.path.basename(os.path.realpath(mount.source)) if mount.source.startswith("/dev/") else ""
        first = self._named(name) or self._mapped(os.path.basename(mount.source))
        if first is None:
            return []
        for folder in sorted(self._sys_root.glob("fs/btrfs/*/devices")):
            names = sorted(os.listdir(folder))
            if first.name in names:
                return [device for device in map(self._named, names) if device is not None]
        return [first]

    def _named(self, name: str) -> BlockDevice | None:
        return _device_at(self._sys_root / "class/block" / name.replace("/", "!")) if name else None

    def _mapped(self, name: str) -> BlockDevice | None:
        """The device of a name in /dev/mapper, where /dev does not show it."""
        found = (self._named(folder.name) for folder in sorted(self._sys_root.glob("class/block/dm-*")))
        return next((device for device in found if name and device is not None and device.detail == name), None)


def _kind(medium: Medium, **told: Any) -> StorageKind:
    about = _ABOUT[medium]
    return StorageKind(medium=medium, starting_depth=about.depth, depth_reason=about.reason, **told)


def _spread(kind: StorageKind, device: BlockDevice) -> StorageKind:
    """Several disks that reads are spread over take as many times more."""
    striped = next((each for each in device.walk() if each.layer in _STRIPED), None)
    num = len({each.name for each in striped.walk() if not each.beneath}) if striped is not None else 1
    if striped is None or num < 2:
        return kind
    depth, reason, level = min(_DEEPEST_START, kind.starting_depth * num), kind.depth_reason, striped.layer
    several = Text(f"{reason.en}; {level} of {num} disks", f"{reason.zh}；{num} 块盘组成 {level}")
    return replace(kind, starting_depth=depth, depth_reason=several)


def _file_system(mount: Mount) -> tuple[Medium | None, str]:
    """What the mount alone tells, and a name for it; no medium: it is on a block device, to be looked at."""
    fs_type, source = mount.fs_type, mount.source
    if fs_type == "fuse" or fs_type.startswith("fuse."):
        # the program behind it: its subtype, else what it calls itself as the source
        program, called = fs_type.partition(".")[2], source.partition(":")[0].partition("#")[0].lower()
        program = program or (called if called in _BY_FUSE_PROGRAM else "")
        medium: Medium | None = _BY_FUSE_PROGRAM.get(program, Medium.FUSE)
        name = f"FUSE ({program or 'its program is not told'}) {source}".strip()
    else:
        medium = _BY_TYPE.get(fs_type)
        proper = f"NFS {mount.options.get('vers', '4' if fs_type == 'nfs4' else '')}".strip()
        name = f"{proper if medium is Medium.NFS else fs_type} {source if medium is not Medium.MEMORY else ''}".strip()
    told = ((option, mount.options[option]) for option in _TELLING if option in mount.options)
    facts = " ".join(f"{option}={value}" if value else option for option, value in told)
    return medium, f"{name} ({facts})" if facts else name


# ------------------------------------------------------------------ mounts

_OCTAL = re.compile(rb"\\([0-7]{3})")
_NOT_ESCAPED_COLON = re.compile(r"(?<!\\):")


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One line of the table of mounts."""

    mount_id: int
    device: str  # "259:2"; a major of 0 means that there is no block device of this number
    root: str  # what of the file system is mounted here: not "/" for bind mounts and subvolumes
    mount_point: str
    fs_type: str  # "ext4", "nfs4", "fuse.sshfs"
    source: str
    options: Mapping[str, str] = field(default_factory=dict)  # of the file system; one without a value has ""

    @property
    def is_bind(self) -> bool:
        """Whether only a folder of a file system is mounted here (a subvolume of btrfs looks alike, and is not one)."""
        return self.root not in ("/", "") and self.fs_type not in ("btrfs", "cgroup", "cgroup2", "nsfs")

    def layers(self) -> tuple[str, ...]:
        """The folders that an overlay shows as one, the one written to first; empty for any other file system."""
        if self.fs_type != "overlay":
            return ()
        # `::` starts those that hold data only
        texts = [self.options.get(name, "") for name in ("upperdir", "lowerdir", "lowerdir+")]
        return tuple(path.replace("\\:", ":") for text in texts for path in _NOT_ESCAPED_COLON.split(text) if path)


def read_mounts(proc_root: Path = Path("/proc")) -> tuple[Mount, ...]:
    """The mounts that this process sees; empty where the table cannot be read."""
    try:
        return parse_mountinfo((proc_root / "self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError:
        return ()


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """Read the table of mounts. Lines that are not of the format are passed over: a kernel may add new kinds."""
    return tuple(mount for mount in map(_parse_line, text.splitlines()) if mount is not None)


def _parse_line(line: str) -> Mount | None:
    """`id parent major:minor root mount-point options [tags] - type source super-options`."""
    before, separator, after = line.partition(" - ")
    left, right = before.split(" "), after.split(" ")
    if not separator or len(left) < 6 or len(right) < 2 or not (left[0].isdigit() and left[1].isdigit()):
        return None
    options: dict[str, str] = {}
    for option in filter(None, (right[2] if len(right) > 2 else "").split(",")):
        name, _, value = option.partition("=")
        value = _unescape(value)
        # `lowerdir+=` comes once for each layer
        options[name] = f"{options[name]}:{value}" if name.endswith("+") and name in options else value
    root, mount_point, fs_type, source = map(_unescape, (left[3], left[4], right[0], right[1]))
    return Mount(
        mount_id=int(left[0]),
        device=left[2],
        root=root,
        mount_point=mount_point,
        fs_type=fs_type,
        source=source,
        options=options,
    )


def _unescape(text: str) -> str:
    """Blanks and backslashes inside a field are written as three octal digits."""
    if "\\" not in text:
        return text
    raw = text.encode("utf-8", "surrogateescape")
    return _OCTAL.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), raw).decode("utf-8", "surrogateescape")


def mount_of(path: str, mounts: Iterable[Mount], *, mount_id: int | None = None) -> Mount | None:
    """The mount that an absolute path without links lies on.

    A mount may hide another one at the same place, and the table's order does not always tell which is on top:
    `mount_id`, if it is known, decides. Else it is the last one of the longest mount point.
    """
    best = None
    for mount in mounts:
        if mount_id is not None and mount.mount_id == mount_id:
            return mount
        is_over = PurePosixPath(path).is_relative_to(mount.mount_point)
        if is_over and (best is None or len(mount.mount_point) >= len(best.mount_point)):
            best = mount
    return best


def _mount_id_of(path: str, proc_root: Path) -> int | None:
    """The id of the mount that a path is reached through, as the kernel tells it for an open file; None: not told."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        lines = (proc_root / "self/fdinfo" / str(fd)).read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("mnt_id:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None
    finally:
        os.close(fd)


# ------------------------------------------------------------------ block devices

_MOST_STACKED = 16  # a loop in the links of a broken tree must end
_BUSES = {
    "nvme": Medium.NVME,
    "mmc": Medium.SSD,
    "virtual": Medium.VIRTUAL_DISK,  # virtio, Xen, a hypervisor's SCSI disk: what is beneath is the host's
    "network": Medium.NETWORK_DISK,  # NVMe over fabrics, iSCSI, nbd, rbd, a cloud's volume
    "memory": Medium.MEMORY,  # zram, brd, pmem
}
# Cloud volumes that come as NVMe disks say so in their model; what each cloud calls its local disks is not here.
_REMOTE_MODELS = ("Amazon Elastic Block Store", "nvme_card-pd", "MSFT NVMe Accelerator")
_VIRTUAL_VENDORS = ("QEMU", "VMware", "Msft", "Google", "DO", "ORACLE")


@dataclass(frozen=True, kw_only=True)
class BlockDevice:
    """A block device and what it lies on."""

    name: str
    layer: str  # "disk", "partition", "LVM", "crypt", "multipath", "device-mapper", "raid0", "bcache", "loop"
    detail: str = ""  # name of the volume, model of the disk
    medium: Medium = Medium.UNKNOWN  # of a disk
    facts: str = "unknown"  # of a disk: how it is reached, and what the kernel says of it
    backing_file: str = ""  # of a loop device
    is_backing_cached: bool = True  # a loop device reads its file through the page cache, as far as is known
    beneath: tuple[BlockDevice, ...] = ()

    def walk(self) -> Iterator[BlockDevice]:
        """Go through the device and all beneath it, the upper ones first."""
        yield self
        for below in self.beneath:
            yield from below.walk()

    def layer_names(self) -> tuple[str, ...]:
        """The layers worth a name, from the top; where a device lies on several, the first one stands for all."""
        below = self.beneath[0].layer_names() if self.beneath else ()
        if self.layer == "partition":
            return below
        if self.layer == "disk":
            return (f"{self.name} ({self.detail})" if self.detail else self.name,)
        return (f"{self.layer} {self.detail or self.name}", *below)


def _device_at(link: Path) -> BlockDevice | None:
    """The device that a link of /sys leads to; None where it is not there (a container may hide it)."""
    return _read_device(Path(os.path.realpath(link)), 0) if link.exists() else None


def _read_device(folder: Path, depth: int) -> BlockDevice:
    name = folder.name
    if (folder / "partition").exists():
        return BlockDevice(name=name, layer="partition", beneath=(_read_device(folder.parent, depth + 1),))
    if (folder / "loop").is_dir():
        file, is_direct = _text(folder / "loop/backing_file"), _text(folder / "loop/dio") == "1"
        return BlockDevice(name=name, layer="loop", backing_file=file, is_backing_cached=not is_direct)
    if (folder / "dm").is_dir():
        kinds = {"LVM-": "LVM", "CRYPT-": "crypt", "mpath-": "multipath"}
        uuid = _text(folder / "dm/uuid")
        layer = next((kind for start, kind in kinds.items() if uuid.startswith(start)), "device-mapper")
        detail = _text(folder / "dm/name")
    elif (folder / "md").is_dir():
        layer, detail = _text(folder / "md/level") or "md", f"{_text(folder / 'md/raid_disks') or '?'} disks"
    elif (folder / "bcache").is_dir():
        layer, detail = "bcache", ""
    else:
        return _read_disk(folder)
    slaves = sorted((folder / "slaves").glob("*")) if depth < _MOST_STACKED else []
    below = tuple(_read_device(Path(os.path.realpath(slave)), depth + 1) for slave in slaves)
    return BlockDevice(name=name, layer=layer, detail=detail, beneath=below)


def _read_disk(folder: Path) -> BlockDevice:
    model = _text(folder / "device/model")
    bus = _bus(folder, model)
    medium = _BUSES.get(bus, Medium.UNKNOWN)
    facts: dict[str, str] = {}
    if bus in ("scsi", "usb"):  # virtual disks mostly leave this at the default of 1, so it counts for real disks alone
        facts["rotational"] = rotational = _text(folder / "queue/rotational")
        medium = {"1": Medium.HDD, "0": Medium.SSD}.get(rotational, Medium.UNKNOWN)
    facts["queue_depth"] = _text(folder / "device/queue_depth")  # commands that it takes at a time (SCSI, SATA)
    facts["nr_requests"] = _text(folder / "queue/nr_requests")  # requests that the kernel queues for it
    scheduler = _text(folder / "queue/scheduler")  # `none [mq-deadline] kyber`
    facts["scheduler"] = scheduler.partition("[")[2].partition("]")[0] or scheduler
    facts["read_ahead_kb"] = _text(folder / "queue/read_ahead_kb")
    told = " ".join([bus, *(f"{name}={value}" for name, value in facts.items() if value)])
    return BlockDevice(name=folder.name, layer="disk", detail=model, medium=medium, facts=told)


def _bus(folder: Path, model: str) -> str:
    """How a disk is reached: one of `_BUSES`, "scsi" (SATA and SAS), "usb" or "unknown"."""
    name, place = folder.name, str(folder)
    if name.startswith("nvme"):
        # with the kernel's own multipath, `device` is the subsystem, and its controllers know how they are reached
        places = [folder / "device/transport", *sorted((folder / "device").glob("nvme*/transport"))]
        is_remote = bool({_text(place) for place in places} - {"", "pcie"}) or model.startswith(_REMOTE_MODELS)
        return "network" if is_remote else "nvme"
    if name.startswith(("nbd", "rbd", "drbd")):
        return "network"
    if name.startswith(("zram", "ram", "pmem")):
        return "memory"
    if name.startswith("mmcblk"):
        return "mmc"
    if name.startswith(("vd", "xvd")) or "/virtio" in place:
        return "virtual"
    if not name.startswith("sd"):
        return "unknown"
    if "/session" in place or "/rport-" in place:  # iSCSI, Fibre Channel
        return "network"
    if _text(folder / "device/vendor") in _VIRTUAL_VENDORS or model.startswith(("QEMU", "VBOX", "VMware")):
        return "virtual"
    return "usb" if "/usb" in place else "scsi"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
