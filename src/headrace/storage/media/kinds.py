"""What is under a path: its file system, the layers down to the disk or the server, and a depth to begin with.

Found by looking, not by reading data: in the kernel's table of mounts (/proc/self/mountinfo, see proc(5)) and in /sys
(Documentation/ABI/stable/sysfs-block), where each block device is a folder: `partition` in that of a partition, `dm/`,
`md/` and `loop/` in those of stacked devices, and in `slaves/` a link to each device that one is stacked on.
"""

import enum
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Self

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
_CLUSTERS = "pvfs2 panfs wekafs glusterfs daos afs"  # pvfs2: OrangeFS
_FUSE_CLUSTERS = "glusterfs seaweedfs mfs dfuse"  # mfs: MooseFS, dfuse: DAOS
_BUCKETS = "s3fs gcsfuse goofys mountpoint-s3 juicefs rclone blobfuse blobfuse2 ossfs cosfs obsfs geesefs alluxio-fuse"


class Medium(enum.StrEnum):
    """What bytes lie on, as far as it matters for reading them."""

    label: Text  # what people call it
    depth: int  # how many reads at a time to begin with; `headrace storage PATH` measures
    reason: Text  # why so many
    file_systems: str  # what it is recognised by …
    fuse_programs: str  # … and the programs behind FUSE

    def __new__(
        cls, value: str, label: Text, depth: int, reason: Text, file_systems: str = "", fuse_programs: str = ""
    ) -> Self:
        medium = str.__new__(cls, value)
        medium._value_, medium.label, medium.depth, medium.reason = value, label, depth, reason
        medium.file_systems, medium.fuse_programs = file_systems, fuse_programs
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
    CEPHFS = ("cephfs", Text("CephFS", "CephFS 分布式文件系统"), 32, _SERVERS, "ceph", "ceph ceph-fuse")
    PARALLEL = ("parallel", Text("cluster file system", "集群文件系统"), 32, _SERVERS, _CLUSTERS, _FUSE_CLUSTERS)
    OBJECT_STORE = ("object_store", _BUCKET, 64, _REQUEST, "", _BUCKETS)  # through FUSE: a bucket shown as files
    SSHFS = ("sshfs", Text("sshfs", "sshfs"), 8, _PROCESS, "", "sshfs")
    FUSE = ("fuse", Text("FUSE", "FUSE 用户态文件系统"), 8, _PROCESS)
    SHARED_FOLDER = ("shared_folder", Text("folder of the host", "宿主机共享目录"), 8, _PROCESS, "9p virtiofs vboxsf")
    MEMORY = ("memory", Text("memory", "内存"), 4, _COPYING, "tmpfs ramfs devtmpfs hugetlbfs")
    ZFS = ("zfs", Text("ZFS", "ZFS"), 16, _UNSEEN, "zfs")
    UNKNOWN = ("unknown", Text("unknown storage", "未知存储"), 8, _NOTHING)


_BY_TYPE = {name: medium for medium in Medium for name in medium.file_systems.split()}
_BY_FUSE_PROGRAM = {name: medium for medium in Medium for name in medium.fuse_programs.split()}
# Of several disks under one file system, the first of these sets the pace.
_DISKS = (Medium.HDD, Medium.NETWORK_DISK, Medium.UNKNOWN, Medium.VIRTUAL_DISK, Medium.SSD, Medium.NVME, Medium.MEMORY)
# Which options of a mount say something about reading.
_TELLING = ("vers", "proto", "nconnect", "rsize", "cache", "trans", "msize", "max_read", "flock", "noac", "lookupcache")
_MOST_LAYERS = 16  # an overlay on a loop device on an overlay …; and a circle of links must end

_NOT_IN_THE_TABLE = Text("the table of mounts does not say", "挂载表里查不到")
_ON_NO_DEVICE = Text("it is on no block device", "它不在任何块设备上")
_DEVICE_HIDDEN = Text("/sys does not show device {device}", "/sys 里看不到设备 {device}")
_FILE_HIDDEN = Text("the file behind {name} is not to be seen here", "这里看不到 {name} 背后的文件")
_LAYERS_HIDDEN = Text("this container does not show the overlay's folders", "从这个容器里看不到 overlay 的各层目录")
_HOST_KNOWS = Text("what is beneath a virtual disk is the host's to know", "虚拟磁盘背后是什么，只有宿主机知道")
_ZFS_HIDES = Text("ZFS hides its disks: `zpool status` shows them", "ZFS 隐藏了底层磁盘，可用 `zpool status` 查看")
_SERVER_CACHES = Text("the server's cache cannot be dropped from here", "服务器端的缓存无法从这里清除")
_BESIDE_THE_PAGE_CACHE = {  # by how a layer's name begins: what dropping pages of the file does not reach
    "FUSE": Text("the program behind FUSE may answer from a cache of its own", "FUSE 背后的程序可能从自己的缓存作答"),
    "zfs": Text("ZFS caches in its ARC, which cannot be dropped from here", "ZFS 的 ARC 缓存无法从这里清除"),
    "loop": Text("the file behind the loop device has pages of its own", "loop 设备背后的文件另有自己的页缓存"),
}


@dataclass(frozen=True, kw_only=True)
class StorageKind:
    """What a path lies on."""

    medium: Medium
    layers: tuple[str, ...] = ()  # from the file system down to the disk or the server
    evidence: str = ""  # what the kernel says, as it says it
    starting_depth: int
    depth_reason: Text
    unknown: tuple[Text, ...] = ()  # what could not be found out, and why
    device: str = ""  # "259:2", or the source of a file system that is on no device

    @property
    def name(self) -> str:
        return " → ".join(self.layers)  # `overlay → ext4 → nvme0n1`

    @property
    def other_cache(self) -> Text | None:
        """A cache of this machine that is not the file's pages, so that dropping those does not make a read cold."""
        found = (_BESIDE_THE_PAGE_CACHE.get(layer.split(" ")[0]) for layer in self.layers)
        return next((said for said in found if said is not None), None)

    def __str__(self) -> str:
        return f"{self.medium.label.en}: {self.name}"

    def _under(self, *layers: str, evidence: str) -> Self:
        """The same with other layers on top."""
        return replace(self, layers=(*layers, *self.layers), evidence=f"{evidence}; {self.evidence}")


def kind_of(path: str | os.PathLike[str], *, root: Path = Path("/")) -> StorageKind:
    """Return what is under a path, and a depth to begin with; it takes well under a millisecond.

    Never raises for a path that cannot be looked at: then the medium is `UNKNOWN`, and `unknown` says why.
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
    root: str  # what of the file system is mounted here: not "/" for bind mounts and subvolumes
    mount_point: str
    fs_type: str  # "ext4", "nfs4", "fuse.sshfs"
    source: str
    options: dict[str, str]  # of the file system; one without a value has ""

    @property
    def is_bind(self) -> bool:
        """Whether only a folder of a file system is mounted here (a subvolume of btrfs looks alike, and is not one)."""
        return self.root not in ("/", "") and self.fs_type not in ("btrfs", "cgroup", "cgroup2", "nsfs")

    def overlaid(self) -> list[str]:
        """The folders that an overlay shows as one, the one written to first."""
        texts = [self.options.get(name, "") for name in ("upperdir", "lowerdir", "lowerdir+")]
        # `::` starts those that hold data only
        return [path.replace("\\:", ":") for text in texts for path in re.split(r"(?<!\\):", text) if path]


class _Look:
    """One look at the machine: its mounts are read once."""

    def __init__(self, root: Path) -> None:
        self._sys, self._mounts = root / "sys", parse_mountinfo(_text(root / "proc/self/mountinfo"))

    def at(self, path: str, depth: int) -> StorageKind:
        mount = mount_of(path, self._mounts)
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
        return _kind(medium, layers=(name,), evidence=evidence, device=mount.source)

    def _on_overlay(self, path: str, mount: Mount, evidence: str, depth: int) -> StorageKind:
        inside = os.path.relpath(path, mount.mount_point)
        for layer in filter(os.path.isabs, mount.overlaid()):
            if os.path.lexists(os.path.join(layer, inside)):
                below = self.at(os.path.realpath(os.path.join(layer, inside)), depth + 1)
                return below._under("overlay", evidence=f"{evidence}; layer: {layer}")
        # a container sees the names of the host's folders, not the folders
        return _kind(Medium.UNKNOWN, layers=("overlay",), evidence=evidence, unknown=(_LAYERS_HIDDEN,))

    def _on_devices(self, mount: Mount, evidence: str, depth: int) -> StorageKind:
        devices = [read_device(folder) for folder in self._folders(mount)]
        if not devices:
            is_pseudo = mount.device.startswith("0:") and not mount.source.startswith("/dev/")
            why = _ON_NO_DEVICE if is_pseudo else _DEVICE_HIDDEN.filled(device=mount.device)
            told = {"evidence": evidence, "device": mount.device}
            return _kind(Medium.UNKNOWN, layers=(mount.fs_type,), unknown=(why,), **told)
        several = (f"{len(devices)} devices",) if len(devices) > 1 else ()
        layers = (mount.fs_type, *several, *devices[0][0])
        disks = {disk.name: disk for _, beneath in devices for disk in beneath}
        loop = next((disk for disk in disks.values() if disk.backing_file is not None), None)
        if loop is not None:  # what counts is what its file lies on
            evidence = f"{evidence}; loop/backing_file={loop.backing_file or '?'}"
            if loop.backing_file and os.path.exists(loop.backing_file):
                return self.at(os.path.realpath(loop.backing_file), depth + 1)._under(*layers, evidence=evidence)
            hidden = _FILE_HIDDEN.filled(name=loop.name)
            return _kind(Medium.UNKNOWN, layers=layers, evidence=evidence, unknown=(hidden,))
        medium = min((disk.medium for disk in disks.values()), key=_DISKS.index)
        evidence = "; ".join([evidence, *(f"{disk.name}: {disk.fact}" for disk in disks.values())])
        return _kind(medium, layers=layers, evidence=evidence, device=mount.device)

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


def _kind(medium: Medium, *, unknown: tuple[Text, ...] = (), **told: Any) -> StorageKind:
    hidden = {Medium.VIRTUAL_DISK: _HOST_KNOWS, Medium.ZFS: _ZFS_HIDES}.get(medium)
    hidden = _SERVER_CACHES if medium.reason in (_SERVER, _SERVERS) else hidden
    unknown += () if hidden is None else (hidden,)
    return StorageKind(medium=medium, starting_depth=medium.depth, depth_reason=medium.reason, unknown=unknown, **told)


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


def parse_mountinfo(text: str) -> list[Mount]:
    """Read lines `id parent major:minor root mount-point options [tags] - type source super-options`; skip others."""
    mounts = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        left, right = before.split(" "), after.split(" ")
        if len(left) < 6 or len(right) < 2:
            continue
        options: dict[str, str] = {}
        for option in filter(None, ",".join(right[2:3]).split(",")):
            name, _, value = option.partition("=")
            value = _unescape(value)
            # `lowerdir+=` comes once for each layer
            options[name] = f"{options[name]}:{value}" if name.endswith("+") and name in options else value
        root, mount_point, fs_type, source = map(_unescape, (*left[3:5], *right[:2]))
        mounts.append(Mount(left[2], root, mount_point, fs_type, source, options))
    return mounts


def _unescape(text: str) -> str:
    r"""Blanks and backslashes inside a field are written as three octal digits: `a\040b`."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8) & 0xFF), text)


def mount_of(path: str, mounts: list[Mount]) -> Mount | None:
    """The mount that an absolute path without links lies on: the last one of the longest mount point."""
    over = [mount for mount in mounts if PurePosixPath(path).is_relative_to(mount.mount_point)]
    return max(reversed(over), key=lambda mount: len(mount.mount_point), default=None)


_MAPPED = {"LVM-": "LVM", "CRYPT-": "crypt", "mpath-": "multipath"}  # by how a device-mapper's uuid begins
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
    """The end of a stack of devices; for a loop device that is a file."""

    name: str
    medium: Medium = Medium.UNKNOWN
    fact: str = "nothing is beneath it"  # what tells the medium
    backing_file: str | None = None


def read_device(folder: Path, depth: int = 0) -> tuple[tuple[str, ...], tuple[_Disk, ...]]:
    """Return what a folder of /sys tells: the layers worth a name from the device's top, and the disks beneath it."""
    # Where a device lies on several, the first one's layers stand for all.
    name = folder.name
    if (folder / "partition").exists():
        return read_device(folder.parent, depth + 1)
    if (folder / "loop").is_dir():
        return (f"loop {name}",), (_Disk(name, backing_file=_text(folder / "loop/backing_file")),)
    if (folder / "dm").is_dir():
        uuid = _text(folder / "dm/uuid")
        layer = next((kind for start, kind in _MAPPED.items() if uuid.startswith(start)), "device-mapper")
        detail = _text(folder / "dm/name")
    elif (folder / "md").is_dir():
        layer, detail = _text(folder / "md/level") or "md", f"{_text(folder / 'md/raid_disks') or '?'} disks"
    elif (folder / "bcache").is_dir():
        layer, detail = "bcache", ""
    else:
        model = _text(folder / "device/model")
        return (f"{name} ({model})" if model else name,), (_Disk(name, *_medium_of(folder, model)),)
    slaves = sorted((folder / "slaves").glob("*")) if depth < _MOST_LAYERS else []
    beneath = [read_device(Path(os.path.realpath(slave)), depth + 1) for slave in slaves]
    disks = dict.fromkeys(disk for _, found in beneath for disk in found) or (_Disk(name),)
    return (f"{layer} {detail or name}", *(beneath[0][0] if beneath else ())), tuple(disks)


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
