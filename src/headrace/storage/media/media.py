"""The kinds of storage, and how many reads at a time each is worth to begin with.

The depths are places to start from, not measurements: `headrace storage PATH` measures. Their reasons stand beside
them, because whoever sees a depth should be able to judge it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from headrace.model import Text

DEEPEST_START = 128


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
    def is_network(self) -> bool:
        """Whether reads go over a network, so that a server caches them and others share it."""
        return self in _NETWORK

    @property
    def label(self) -> Text:
        """What people call it."""
        return _LABELS[self]

    @property
    def start(self) -> Start:
        """The depth to begin with."""
        return _STARTS[self]


@dataclass(frozen=True)
class Start:
    """How many reads to keep in flight to begin with, and why."""

    depth: int
    reason: Text


_NETWORK = frozenset(
    {
        *(Medium.NETWORK_DISK, Medium.NFS, Medium.SMB, Medium.LUSTRE, Medium.GPFS, Medium.BEEGFS, Medium.CEPHFS),
        *(Medium.PARALLEL, Medium.OBJECT_STORE, Medium.SSHFS),
    }
)

_LABELS = {
    Medium.NVME: Text("NVMe", "NVMe 固态盘"),
    Medium.SSD: Text("SSD", "SATA/SAS 固态盘"),
    Medium.HDD: Text("hard disk", "机械硬盘"),
    Medium.VIRTUAL_DISK: Text("virtual disk", "虚拟磁盘"),
    Medium.NETWORK_DISK: Text("network disk", "网络块设备"),
    Medium.NFS: Text("NFS", "NFS 网络文件系统"),
    Medium.SMB: Text("SMB share", "SMB 共享"),
    Medium.LUSTRE: Text("Lustre", "Lustre 并行文件系统"),
    Medium.GPFS: Text("GPFS (Storage Scale)", "GPFS（Storage Scale）并行文件系统"),
    Medium.BEEGFS: Text("BeeGFS", "BeeGFS 并行文件系统"),
    Medium.CEPHFS: Text("CephFS", "CephFS 分布式文件系统"),
    Medium.PARALLEL: Text("cluster file system", "集群文件系统"),
    Medium.OBJECT_STORE: Text("object store through FUSE", "经 FUSE 挂载的对象存储"),
    Medium.SSHFS: Text("sshfs", "sshfs"),
    Medium.FUSE: Text("FUSE", "FUSE 用户态文件系统"),
    Medium.SHARED_FOLDER: Text("folder of the host", "宿主机共享目录"),
    Medium.MEMORY: Text("memory", "内存"),
    Medium.ZFS: Text("ZFS", "ZFS"),
    Medium.UNKNOWN: Text("unknown storage", "未知存储"),
}

_OF_A_SERVER = Text(
    "each read waits for a server: only many at a time fill the network",
    "每次读取都要等服务器往返，只有并发多了才能用满带宽",
)
_STARTS = {
    Medium.NVME: Start(32, Text("NVMe serves many reads in parallel", "NVMe 能并行处理大量读取")),
    Medium.SSD: Start(16, Text("SATA takes 32 commands at a time; half of them", "SATA 最多同时接 32 条命令，取一半")),
    Medium.HDD: Start(
        2, Text("one head: more readers only make it seek", "只有一组磁头，读者越多，寻道越多"),
    ),
    Medium.VIRTUAL_DISK: Start(
        16, Text("the host's disk is not to be seen; most take 16", "看不到宿主机的磁盘，多数能接 16 个并发"),
    ),
    Medium.NETWORK_DISK: Start(32, _OF_A_SERVER),
    Medium.NFS: Start(16, _OF_A_SERVER),
    Medium.SMB: Start(8, _OF_A_SERVER),
    Medium.LUSTRE: Start(
        32, Text("several servers, 8 requests in flight to each by default", "多台服务器，默认每台 8 个在途请求"),
    ),
    Medium.GPFS: Start(32, Text("blocks lie on several servers", "数据块分布在多台服务器上")),
    Medium.BEEGFS: Start(32, Text("chunks lie on several servers", "数据条带分布在多台服务器上")),
    Medium.CEPHFS: Start(32, Text("objects lie on several servers", "对象分布在多台服务器上")),
    Medium.PARALLEL: Start(32, _OF_A_SERVER),
    Medium.OBJECT_STORE: Start(
        64, Text("a request takes tens of milliseconds, whatever its size", "每个请求都要几十毫秒，与大小无关"),
    ),
    Medium.SSHFS: Start(8, Text("one connection, one process that encrypts", "只有一条连接，由一个进程加密")),
    Medium.FUSE: Start(
        8, Text("one process stands between and may be single-threaded", "中间隔着一个进程，可能是单线程的"),
    ),
    Medium.SHARED_FOLDER: Start(8, Text("the hypervisor carries each request over", "每个请求都由虚拟机监控器转交")),
    Medium.MEMORY: Start(
        4, Text("reading is copying: a few readers fill the memory bus", "读取就是拷贝，几个读者就能占满内存带宽"),
    ),
    Medium.ZFS: Start(16, Text("the disks of the pool are not to be seen", "看不到存储池里的磁盘")),
    Medium.UNKNOWN: Start(8, Text("nothing is known about it", "对它一无所知")),
}  # fmt: skip


def slowest(media: list[Medium]) -> Medium:
    """Of the disks of one file system, the one that sets the pace."""
    order = [
        *(Medium.HDD, Medium.NETWORK_DISK, Medium.UNKNOWN, Medium.VIRTUAL_DISK, Medium.SSD, Medium.NVME),
        Medium.MEMORY,
    ]
    return min(media, key=order.index, default=Medium.UNKNOWN)
