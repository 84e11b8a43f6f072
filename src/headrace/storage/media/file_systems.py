"""What a file system's type, source and options tell: the ones that are not on a disk of this machine."""

from __future__ import annotations

from dataclasses import dataclass

from .media import Medium
from .mounts import Mount


@dataclass(frozen=True)
class FileSystem:
    """A file system as people name it."""

    medium: Medium
    name: str
    facts: tuple[str, ...] = ()


_BY_TYPE = {
    "nfs": Medium.NFS,
    "nfs4": Medium.NFS,
    "cifs": Medium.SMB,
    "smb3": Medium.SMB,
    "lustre": Medium.LUSTRE,
    "gpfs": Medium.GPFS,
    "beegfs": Medium.BEEGFS,
    "ceph": Medium.CEPHFS,
    "pvfs2": Medium.PARALLEL,  # OrangeFS
    "panfs": Medium.PARALLEL,
    "wekafs": Medium.PARALLEL,
    "glusterfs": Medium.PARALLEL,
    "daos": Medium.PARALLEL,
    "afs": Medium.PARALLEL,
    "9p": Medium.SHARED_FOLDER,
    "virtiofs": Medium.SHARED_FOLDER,
    "vboxsf": Medium.SHARED_FOLDER,
    "tmpfs": Medium.MEMORY,
    "ramfs": Medium.MEMORY,
    "devtmpfs": Medium.MEMORY,
    "hugetlbfs": Medium.MEMORY,
    "zfs": Medium.ZFS,
}
_FUSE_PROGRAMS = {
    "s3fs": Medium.OBJECT_STORE,
    "gcsfuse": Medium.OBJECT_STORE,
    "goofys": Medium.OBJECT_STORE,
    "mountpoint-s3": Medium.OBJECT_STORE,
    "juicefs": Medium.OBJECT_STORE,
    "rclone": Medium.OBJECT_STORE,
    "blobfuse": Medium.OBJECT_STORE,
    "blobfuse2": Medium.OBJECT_STORE,
    "ossfs": Medium.OBJECT_STORE,
    "cosfs": Medium.OBJECT_STORE,
    "obsfs": Medium.OBJECT_STORE,
    "geesefs": Medium.OBJECT_STORE,
    "alluxio-fuse": Medium.OBJECT_STORE,
    "sshfs": Medium.SSHFS,
    "glusterfs": Medium.PARALLEL,
    "ceph": Medium.CEPHFS,
    "ceph-fuse": Medium.CEPHFS,
    "seaweedfs": Medium.PARALLEL,
    "mfs": Medium.PARALLEL,  # MooseFS
    "dfuse": Medium.PARALLEL,  # DAOS
}
# Which options of a mount say something about reading.
_TELLING = ("vers", "proto", "nconnect", "rsize", "cache", "trans", "msize", "max_read", "flock", "noac", "lookupcache")


def describe_file_system(mount: Mount) -> FileSystem | None:
    """What the mount alone tells; None: it lies on a block device, or is an overlay, and one has to look beneath."""
    fs_type, facts = mount.fs_type, _facts(mount)
    if fs_type == "fuse" or fs_type.startswith("fuse."):
        program = _program(mount)
        medium = _FUSE_PROGRAMS.get(program, Medium.FUSE)
        return FileSystem(medium, f"FUSE ({program or 'its program is not told'}) {mount.source}".strip(), facts)
    medium = _BY_TYPE.get(fs_type, Medium.UNKNOWN)
    if medium is Medium.UNKNOWN:
        return None
    if medium is Medium.MEMORY:
        return FileSystem(medium, fs_type, facts)
    return FileSystem(medium, f"{_proper(fs_type, mount)} {mount.source}", facts)


def _program(mount: Mount) -> str:
    """The program behind a FUSE mount: its subtype, else what it calls itself as the source; empty: not told."""
    subtype = mount.fs_type.partition(".")[2]
    if subtype:
        return subtype
    known = mount.source.partition(":")[0].partition("#")[0].lower()
    return known if known in _FUSE_PROGRAMS else ""


def _proper(fs_type: str, mount: Mount) -> str:
    if fs_type.startswith("nfs"):
        return f"NFS {mount.options.get('vers', '4' if fs_type == 'nfs4' else '')}".strip()
    return fs_type


def _facts(mount: Mount) -> tuple[str, ...]:
    told = ((name, mount.options[name]) for name in _TELLING if name in mount.options)
    return tuple(f"{name}={value}" if value else name for name, value in told)
