"""What is under a path: its file system, the disk or the server that it lies on, and a depth to begin with.

Found by looking, not by reading data: in the kernel's table of mounts (/proc/self/mountinfo, see proc(5)) and in /sys
(Documentation/ABI/stable/sysfs-block), where each block device is a folder: `partition` in that of a partition, `loop/`
in that of a loop device, and in `slaves/` a link to each device that one is stacked on (LVM, LUKS, multipath, md).
"""

import enum
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Self

from headrace.model import Text

_SERVER = Text("each read waits for a server: only many fill the network", "每次读取都要等服务器，并发多了才能用满带宽")
_SERVERS = Text("the data lies on several servers", "数据分布在多台服务器上")
_NVME = Text("NVMe serves many reads in parallel", "NVMe 能并行处理大量读取")
_SATA = Text("SATA takes 32 commands at a time; half of them", "SATA 最多同时接 32 条命令，取一半")
_HEAD = Text("one head: more readers only make it seek", "只有一组磁头，读者越多，寻道越多")
_UNSEEN = Text("the disks beneath are not to be seen; most take 16", "看不到底层磁盘，多数能接 16 个并发")
_REQUEST = Text("a request takes tens of milliseconds, whatever its size", "每个请求都要几十毫秒，与大小无关")
_PROCESS = Text("one process stands between and may be single-threaded", "中间隔着一个进程，可能是单线程的")
_COPYING = Text("reading is copying: a few readers fill the memory bus", "读取就是拷贝，几个读者就能占满内存带宽")
_NOTHING = Text("nothing is known about it", "对它一无所知")
_BUCKET = Text("object store through FUSE", "经 FUSE 挂载的对象存储")
_CLUSTERS = "pvfs2 panfs wekafs glusterfs daos afs seaweedfs mfs dfuse"  # pvfs2: OrangeFS, mfs: MooseFS, dfuse: DAOS
_BUCKETS = "s3fs gcsfuse goofys mountpoint-s3 juicefs rclone blobfuse blobfuse2 ossfs cosfs obsfs geesefs alluxio-fuse"


class Medium(enum.StrEnum):
    """What bytes lie on, as far as it matters for reading them."""

    label: Text  # what people call it
    depth: int  # how many reads at a time to begin with; `headrace storage PATH` measures
    reason: Text  # why so many
    file_systems: str  # what it is recognised by: the kernel's, and programs behind FUSE

    def __new__(cls, value: str, label: Text, depth: int, reason: Text, file_systems: str = "") -> Self:
        medium = str.__new__(cls, value)
        medium._value_, medium.label, medium.depth, medium.reason = value, label, depth, reason
        medium.file_systems = file_systems
        return medium

    NVME = ("nvme", Text("NVMe", "NVMe 固态盘"), 32, _NVME)
    SSD = ("ssd", Text("SSD", "SATA/SAS 固态盘"), 16, _SATA)
    HDD = ("hdd", Text("hard disk", "机械硬盘"), 2, _HEAD)
    VIRTUAL_DISK = ("virtual_disk", Text("virtual disk", "虚拟磁盘"), 16, _UNSEEN)
    NETWORK_DISK = ("network_disk", Text("network disk", "网络块设备"), 32, _SERVER)
    NFS = ("nfs", Text("NFS", "NFS 网络文件系统"), 16, _SERVER, "nfs nfs4")
    SMB = ("smb", Text("SMB share", "SMB 共享"), 8, _SERVER, "cifs smb3")
    LUSTRE = ("lustre", Text("Lustre", "Lustre 并行文件系统"), 32, _SERVERS, "lustre")
    GPFS = ("gpfs", Text("GPFS (Storage Scale)", "GPFS（Storage Scale）并行文件系统"), 32, _SERVERS, "gpfs")
    BEEGFS = ("beegfs", Text("BeeGFS", "BeeGFS 并行文件系统"), 32, _SERVERS, "beegfs")
    CEPHFS = ("cephfs", Text("CephFS", "CephFS 分布式文件系统"), 32, _SERVERS, "ceph ceph-fuse")
    PARALLEL = ("parallel", Text("cluster file system", "集群文件系统"), 32, _SERVERS, _CLUSTERS)
    OBJECT_STORE = ("object_store", _BUCKET, 64, _REQUEST, _BUCKETS)  # through FUSE: a bucket shown as files
    SSHFS = ("sshfs", Text("sshfs", "sshfs"), 8, _PROCESS, "sshfs")
    FUSE = ("fuse", Text("FUSE", "FUSE 用户态文件系统"), 8, _PROCESS)
    SHARED_FOLDER = ("shared_folder", Text("folder of the host", "宿主机共享目录"), 8, _PROCESS, "9p virtiofs vboxsf")
    MEMORY = ("memory", Text("memory", "内存"), 4, _COPYING, "tmpfs ramfs devtmpfs hugetlbfs")
    ZFS = ("zfs", Text("ZFS", "ZFS"), 16, _UNSEEN, "zfs")
    UNKNOWN = ("unknown", Text("unknown storage", "未知存储"), 8, _NOTHING)


_BY_TYPE = {name: medium for medium in Medium for name in medium.file_systems.split()}
# Of several disks under one file system, the first of these sets the pace.
_DISKS = (Medium.HDD, Medium.NETWORK_DISK, Medium.UNKNOWN, Medium.VIRTUAL_DISK, Medium.SSD, Medium.NVME, Medium.MEMORY)
_MOST_LAYERS = 16  # an overlay on a loop device on an overlay …; and a circle of links must end

_OTHER_CACHES = {  # of this machine, beside the page cache; by what has one
    "fuse": Text("the program behind FUSE may answer from a cache of its own", "FUSE 背后的程序可能从自己的缓存作答"),
    "zfs": Text("ZFS caches in its ARC, which cannot be dropped from here", "ZFS 的 ARC 缓存无法从这里清除"),
    "loop": Text("the file behind the loop device has pages of its own", "loop 设备背后的文件另有自己的页缓存"),
}


@dataclass(frozen=True, kw_only=True)
class StorageKind:
    """What a path lies on."""

    medium: Medium
    name: str = ""  # the file system, and the server or the disk that sets the pace: `ext4 → nvme0n1`
    evidence: str = ""  # what the kernel says, as it says it
    device: str = ""  # "259:2", or the source of a file system that is on no device
    other_cache: Text | None = None  # dropping the files' pages does not empty it, so no read is shown to be cold

    @property
    def starting_depth(self) -> int:
        return self.medium.depth

    @property
    def depth_reason(self) -> Text:
        return self.medium.reason

    def __str__(self) -> str:
        return f"{self.medium.label.en}: {self.name}"


def kind_of(path: str | os.PathLike[str], *, root: Path = Path("/")) -> StorageKind:
    """Return what is under a path, and a depth to begin with; it takes well under a millisecond.

    Never raises for a path that cannot be looked at: then the medium is `UNKNOWN`.
    """
    return _Look(root).at(os.path.realpath(path), 0)


def starting_depth(path: str) -> tuple[int, str]:
    """How many reads in flight to begin with under a path, and why; 0: reading ahead brings nothing there."""
    kind = kind_of(path)
    if kind.medium is Medium.MEMORY:
        return 0, f"{kind}: there is nothing to wait for"
    return kind.starting_depth, f"{kind}"


class Mount(NamedTuple):
    """One line of the table of mounts."""

    device: str  # "259:2"; a major of 0 means that there is no block device of this number
    mount_point: str
    fs_type: str  # "ext4", "nfs4", "fuse.sshfs"
    source: str
    options: str = ""  # of the file system, as they stand there

    def overlaid(self) -> list[str]:
        """The folders that an overlay shows as one, the one written to first."""
        options = [option.partition("=") for option in self.options.split(",")]
        wanted = ("upperdir", "lowerdir", "lowerdir+")  # the last one comes once for each folder
        texts = [_unescape(value) for each in wanted for name, _, value in options if name == each]
        # `::` starts those that hold data only
        return [path.replace("\\:", ":") for text in texts for path in re.split(r"(?<!\\):", text) if path]


class _Look:
    """One look at the machine: its mounts are read once."""

    def __init__(self, root: Path) -> None:
        self._sys, self._mounts = root / "sys", parse_mountinfo(_text(root / "proc/self/mountinfo"))

    def at(self, path: str, depth: int) -> StorageKind:
        mount = mount_of(path, self._mounts)
        if mount is None or depth > _MOST_LAYERS:
            return StorageKind(medium=Medium.UNKNOWN, evidence=f"mountinfo: no mount of {path}")
        evidence = f"mountinfo: {mount.device} {mount.fs_type} {mount.source} on {mount.mount_point}"
        if mount.fs_type == "overlay":
            return self._on_overlay(path, mount, evidence, depth)
        fs_type, _, program = mount.fs_type.partition(".")
        medium = _BY_TYPE.get(mount.fs_type)
        if fs_type == "fuse":
            # the program behind it: its subtype, else what it calls itself as the source
            called = mount.source.partition(":")[0].partition("#")[0].lower()
            medium = _BY_TYPE.get(program or called, Medium.FUSE)
        if medium is None:
            return self._on_disks(mount, evidence, depth)
        name = mount.fs_type if medium is Medium.MEMORY else f"{mount.fs_type} {mount.source}".strip()
        other = _OTHER_CACHES.get(fs_type)
        return StorageKind(medium=medium, name=name, evidence=evidence, device=mount.source, other_cache=other)

    def _on_overlay(self, path: str, mount: Mount, evidence: str, depth: int) -> StorageKind:
        inside = os.path.relpath(path, mount.mount_point)
        for layer in filter(os.path.isabs, mount.overlaid()):
            if os.path.lexists(os.path.join(layer, inside)):
                below = self.at(os.path.realpath(os.path.join(layer, inside)), depth + 1)
                return replace(below, name=f"overlay → {below.name}")
        # a container sees the names of the host's folders, not the folders
        return StorageKind(medium=Medium.UNKNOWN, name="overlay", evidence=evidence)

    def _on_disks(self, mount: Mount, evidence: str, depth: int) -> StorageKind:
        disks = list(dict.fromkeys(disk for folder in self._folders(mount) for disk in disks_of(folder)))
        kind = StorageKind(medium=Medium.UNKNOWN, name=mount.fs_type, evidence=evidence, device=mount.device)
        if not disks:
            return replace(kind, evidence=f"{evidence}; /sys has no disk of it")
        disk = min(disks, key=lambda each: (each.backing_file is None, _DISKS.index(each.medium)))
        several = f", 1 of {len(disks)} disks" if len(disks) > 1 else ""
        name, evidence = f"{mount.fs_type} → {disk.name}{several}", f"{evidence}; {disk.fact}"
        kind = replace(kind, medium=disk.medium, name=name, evidence=evidence)
        if disk.backing_file is None:
            return kind
        if os.path.exists(disk.backing_file):  # what counts is what its file lies on
            below = self.at(os.path.realpath(disk.backing_file), depth + 1)
            kind = replace(below, name=f"{name} → {below.name}", evidence=f"{evidence}; {below.evidence}")
        return replace(kind, other_cache=_OTHER_CACHES["loop"])

    def _folders(self, mount: Mount) -> list[Path]:
        """Where /sys describes the devices of a mount; none where it does not (a container may hide them)."""
        links = [self._sys / "dev/block" / mount.device]
        if mount.device.startswith("0:"):
            # btrfs and the like have a number of their own; the source names one of their devices
            name = os.path.basename(os.path.realpath(mount.source))
            together = (sorted(os.listdir(each)) for each in sorted(self._sys.glob("fs/btrfs/*/devices")))
            names = next((names for names in together if name in names), [name])
            links = [self._sys / "class/block" / each for each in names if mount.source.startswith("/dev/")]
        return [Path(os.path.realpath(link)) for link in links if link.exists()]


def parse_mountinfo(text: str) -> list[Mount]:
    """Read lines `id parent major:minor root mount-point options [tags] - type source super-options`; skip others."""
    mounts = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        left, right = before.split(" "), after.split(" ")
        if len(left) < 6 or len(right) < 2:
            continue
        mount_point, fs_type, source = map(_unescape, (left[4], *right[:2]))
        mounts.append(Mount(left[2], mount_point, fs_type, source, "".join(right[2:3])))
    return mounts


def _unescape(text: str) -> str:
    r"""Blanks and backslashes inside a field are written as three octal digits: `a\040b`."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8) & 0xFF), text)


def mount_of(path: str, mounts: list[Mount]) -> Mount | None:
    """The mount that an absolute path without links lies on: the last one of the longest mount point."""
    over = [mount for mount in mounts if PurePosixPath(path).is_relative_to(mount.mount_point)]
    return max(reversed(over), key=lambda mount: len(mount.mount_point), default=None)


_BY_NAME = {
    Medium.NETWORK_DISK: ("nbd", "rbd", "drbd"),
    Medium.MEMORY: ("zram", "ram", "pmem"),
    Medium.SSD: ("mmcblk",),
    Medium.VIRTUAL_DISK: ("vd", "xvd"),  # virtio, Xen
}
# Cloud volumes that come as NVMe disks say so in their model; what each cloud calls its local disks is not here.
_REMOTE_MODELS = ("Amazon Elastic Block Store", "nvme_card-pd", "MSFT NVMe Accelerator")
_VIRTUAL_VENDORS = ("QEMU", "VMware", "Msft", "Google", "DO", "ORACLE")


class _Disk(NamedTuple):
    """The end of a stack of devices."""

    name: str
    medium: Medium
    fact: str  # what tells the medium
    backing_file: str | None = None  # of a loop device; "" where it is not told


def disks_of(folder: Path, depth: int = 0) -> list[_Disk]:
    """Return the disks beneath a device, a folder of /sys, whatever is stacked on them."""
    if (folder / "partition").exists():
        folder = folder.parent
    if (folder / "loop").is_dir():
        file = _text(folder / "loop/backing_file")
        return [_Disk(folder.name, Medium.UNKNOWN, f"loop/backing_file={file or '?'}", file)]
    slaves = sorted((folder / "slaves").glob("*")) if depth < _MOST_LAYERS else []
    if slaves:
        return [disk for slave in slaves for disk in disks_of(Path(os.path.realpath(slave)), depth + 1)]
    model = _text(folder / "device/model")
    medium, fact = _medium_of(folder, model)
    return [_Disk(f"{folder.name} ({model})" if model else folder.name, medium, f"{folder.name}: {fact}")]


def _medium_of(folder: Path, model: str) -> tuple[Medium, str]:
    name, place = folder.name, str(folder)
    if name.startswith("nvme"):
        # with the kernel's own multipath, `device` is the subsystem, and its controllers know how they are reached
        places = [folder / "device/transport", *sorted((folder / "device").glob("nvme*/transport"))]
        transport = ", ".join(sorted({_text(place) for place in places} - {""}))
        is_remote = transport not in ("", "pcie") or model.startswith(_REMOTE_MODELS)
        return Medium.NETWORK_DISK if is_remote else Medium.NVME, f"transport={transport or '?'}"
    for medium, starts in _BY_NAME.items():
        if name.startswith(starts):
            return medium, "by its name"
    if name.startswith("sd") and ("/session" in place or "/rport-" in place):
        return Medium.NETWORK_DISK, "iSCSI or Fibre Channel"
    vendor = _text(folder / "device/vendor")
    if "/virtio" in place or vendor in _VIRTUAL_VENDORS or model.startswith(("QEMU", "VBOX", "VMware")):
        return Medium.VIRTUAL_DISK, f"vendor={vendor or '?'}"
    # asked last: virtual disks mostly leave it at the default of 1
    rotational = _text(folder / "queue/rotational") if name.startswith("sd") else ""
    return {"1": Medium.HDD, "0": Medium.SSD}.get(rotational, Medium.UNKNOWN), f"rotational={rotational or '?'}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").strip()
    except OSError:
        return ""
