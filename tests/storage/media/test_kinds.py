"""What is under a path is told from /proc and /sys, for machines of many kinds, and never guessed."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.storage.media import Medium, kind_of
from headrace.storage.media.kinds import Mount, mount_of, parse_mountinfo

from ..machines import MACHINES, load_machine

SAMSUNG = "nvme0n1 (Samsung SSD 980 PRO 1TB)"
EXPECTED = {
    "workstation": [
        ("/home/me/data", Medium.NVME, "ext4 → nvme0n1 (Samsung SSD 980 PRO 1TB)", 32),
        ("/wsdata/hdd/a/b.tar", Medium.HDD, "ext4 → sda (ST4000DM004-2CV1)", 2),
        ("/wsdata/ssd", Medium.SSD, "xfs → sdb (Samsung SSD 870)", 16),
        ("/wsdata/lvm", Medium.NVME, "xfs → nvme0n1 (Samsung SSD 980 PRO 1TB)", 32),
        ("/wsdata/luks/x", Medium.NVME, "ext4 → nvme0n1 (Samsung SSD 980 PRO 1TB)", 32),
        ("/wsdata/raid0", Medium.NVME, "xfs → nvme1n1, 1 of 2 disks", 32),
        ("/wsdata/raid5", Medium.HDD, "ext4 → sdc, 1 of 3 disks", 2),
        ("/wsdata/btrfs", Medium.HDD, "btrfs → sdd, 1 of 2 disks", 2),
        ("/wsdata/usb disk/x", Medium.HDD, "ext4 → sdf", 2),
        ("/wsdata/tank/x", Medium.ZFS, "zfs tank/data", 16),
        ("/wsdata/bound/x", Medium.NVME, "ext4 → nvme0n1 (Samsung SSD 980 PRO 1TB)", 32),
        ("/wsdata/ntfs/x", Medium.HDD, "fuseblk → sdg", 2),
        ("/wsdata/hidden/x", Medium.HDD, "ext4 → sda (ST4000DM004-2CV1)", 2),
        ("/dev/shm/x", Medium.MEMORY, "tmpfs", 4),
        ("/wsdata/gone", Medium.UNKNOWN, "ext4", 8),
    ],
    "cluster": [
        ("/cl/nfs/train", Medium.NFS, "nfs4 10.96.84.126:/export/sa1b", 16),
        ("/cl/nfs3/x", Medium.NFS, "nfs 192.168.1.80:/ifs/vols/vol01", 16),
        ("/cl/lustre/x", Medium.LUSTRE, "lustre 192.168.12.10@o2ib:192.168.12.11@o2ib:/lustre", 32),
        ("/cl/gpfs/x", Medium.GPFS, "gpfs gpfs0", 32),
        ("/cl/beegfs/x", Medium.BEEGFS, "beegfs beegfs_nodev", 32),
        ("/cl/ceph/x", Medium.CEPHFS, "ceph 10.1.0.1:6789,10.1.0.2:6789:/volumes/ml", 32),
        ("/cl/smb/x", Medium.SMB, "cifs //nas/media", 8),
        ("/cl/weka/x", Medium.PARALLEL, "wekafs 10.2.0.1/default", 32),
        ("/cl/sshfs/x", Medium.SSHFS, "fuse.sshfs ben@nas:/srv", 8),
        ("/cl/s3fs/x", Medium.OBJECT_STORE, "fuse.s3fs s3fs", 64),
        ("/cl/gcs/x", Medium.OBJECT_STORE, "fuse.gcsfuse training-bucket", 64),
        ("/cl/juice/x", Medium.OBJECT_STORE, "fuse.juicefs JuiceFS:minio", 64),
        ("/cl/mount-s3/x", Medium.OBJECT_STORE, "fuse mountpoint-s3", 64),
        ("/cl/rclone/x", Medium.OBJECT_STORE, "fuse.rclone remote:bucket", 64),
        ("/cl/gluster/x", Medium.PARALLEL, "fuse.glusterfs gluster:media", 32),
        ("/cl/merger/x", Medium.FUSE, "fuse.mergerfs a:b", 8),
        ("/cl/unnamed/x", Medium.FUSE, "fuse /srv/data", 8),
        ("/cl/ebs/x", Medium.NETWORK_DISK, "xfs → nvme1n1 (Amazon Elastic Block Store)", 32),
        ("/cl/instance/x", Medium.NVME, "xfs → nvme2n1 (Amazon EC2 NVMe Instance Storage)", 32),
        ("/cl/nvme-tcp/x", Medium.NETWORK_DISK, "xfs → nvme3n1 (Linux)", 32),
        ("/cl/subsystem/x", Medium.NETWORK_DISK, "xfs → nvme4n1 (Dell PM1733a)", 32),
        ("/cl/iscsi/x", Medium.NETWORK_DISK, "ext4 → sdc", 32),
        ("/cl/rbd/x", Medium.NETWORK_DISK, "ext4 → rbd0", 32),
        ("/cl/multipath/x", Medium.NETWORK_DISK, "xfs → sdd", 32),
    ],
    "container": [
        ("/containerdata/train/x", Medium.HDD, "ext4 → sda", 2),
        ("/workspace", Medium.UNKNOWN, "overlay", 8),
    ],
    "guest": [
        ("/nowhere/in/particular", Medium.VIRTUAL_DISK, "ext4 → vda", 16),
        ("/guest/9p/x", Medium.SHARED_FOLDER, "9p hostshare", 8),
        ("/guest/virtiofs/x", Medium.SHARED_FOLDER, "virtiofs share", 8),
        ("/guest/qemu/x", Medium.VIRTUAL_DISK, "ext4 → sdb (QEMU HARDDISK)", 16),
        ("/guest/google/x", Medium.VIRTUAL_DISK, "ext4 → sdc (PersistentDisk)", 16),
        ("/guest/xen/x", Medium.VIRTUAL_DISK, "ext4 → xvdb", 16),
        ("/guest/loop/x", Medium.UNKNOWN, "squashfs → loop3", 8),
        ("/guest/overlay/x", Medium.UNKNOWN, "overlay", 8),
    ],
}


@pytest.mark.parametrize("machine", EXPECTED)
def test_the_paths_of_a_machine(machine: str, tmp_path: Path) -> None:
    here = load_machine(machine, tmp_path)
    for path, medium, name, depth in EXPECTED[machine]:
        kind = here.kind_of(path)
        assert (kind.medium, kind.name, kind.starting_depth) == (medium, name, depth), path
        assert kind.evidence.startswith("mountinfo: ")
        assert kind.depth_reason.en
        assert kind.depth_reason.zh


def test_what_cannot_be_seen_is_unknown_and_what_was_seen_is_said(tmp_path: Path) -> None:
    guest, workstation = load_machine("guest", tmp_path / "guest"), load_machine("workstation", tmp_path / "ws")
    for machine, path, said in (
        (guest, "/guest/overlay", " overlay overlay on /guest/overlay"),
        (guest, "/guest/loop", "loop/backing_file="),
        (workstation, "/wsdata/gone", "253:9 ext4 /dev/mapper/gone on /wsdata/gone; /sys has no disk of it"),
    ):
        kind = machine.kind_of(path)
        assert kind.medium is Medium.UNKNOWN
        assert said in kind.evidence


def test_the_evidence_is_what_the_kernel_says(tmp_path: Path) -> None:
    kind = load_machine("workstation", tmp_path).kind_of("/wsdata/hdd")
    assert kind.evidence == "mountinfo: 8:1 ext4 /dev/sda1 on /wsdata/hdd; sda: rotational=1"
    raid = load_machine("workstation", tmp_path / "other").kind_of("/wsdata/raid5")
    assert raid.evidence == "mountinfo: 9:1 ext4 /dev/md1 on /wsdata/raid5; sdc: rotational=1"


def test_caches_that_cannot_be_emptied_are_named(tmp_path: Path) -> None:
    cluster, workstation = load_machine("cluster", tmp_path / "cl"), load_machine("workstation", tmp_path / "ws")
    loop = load_machine("guest", tmp_path / "guest").kind_of("/guest/loop")
    fuse, mounted_bucket = cluster.kind_of("/cl/s3fs"), cluster.kind_of("/cl/mount-s3")
    zfs = workstation.kind_of("/wsdata/tank")
    for kind, said in ((fuse, "FUSE"), (mounted_bucket, "FUSE"), (zfs, "ARC"), (loop, "loop device")):
        assert kind.other_cache is not None
        assert said in kind.other_cache.en
    for path in ("/wsdata/ssd", "/wsdata/ntfs"):
        assert workstation.kind_of(path).other_cache is None


def test_nothing_is_known_where_there_is_no_table(tmp_path: Path) -> None:
    kind = kind_of("/anything", root=tmp_path)
    assert (kind.medium, kind.name) == (Medium.UNKNOWN, "")
    assert kind.evidence == "mountinfo: no mount of /anything"


def test_a_loop_in_the_links_of_sys_ends(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text("22 1 253:0 / / rw - ext4 /dev/dm-0 rw\n")
    folder = tmp_path / "sys/devices/virtual/block/dm-0"
    (folder / "dm").mkdir(parents=True)
    (folder / "slaves").mkdir()
    (folder / "slaves/dm-0").symlink_to("../../dm-0")
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / "sys/dev/block/253:0").symlink_to("../../devices/virtual/block/dm-0")
    assert kind_of("/x", root=tmp_path).medium is Medium.UNKNOWN


def _source(path: str, table: str) -> str:
    mount = mount_of(path, parse_mountinfo(table))
    return "" if mount is None else mount.source


def test_the_last_mount_at_a_place_is_on_top() -> None:
    table = "9 1 0:90 / /data rw - tmpfs a rw\n7 1 0:91 / /data rw - ext4 b rw\n8 1 0:92 / /data rw - xfs c rw"
    assert _source("/data/x", table) == "c"
    assert _source("/other", table) == ""


def test_a_name_that_only_begins_alike_is_another_folder() -> None:
    table = "1 0 8:1 / / rw - ext4 root rw\n2 1 8:2 / /data rw - xfs data rw"
    assert [_source(path, table) for path in ("/data2", "/data/2", "/data")] == ["root", "data", "data"]


def test_overlay_folders_with_colons_and_blanks() -> None:
    line = r"5 1 0:9 / /m rw - overlay overlay rw,lowerdir=/a\040b:/c\134:d::/e,upperdir=/u,workdir=/w"
    (mount,) = parse_mountinfo(line)
    assert mount.overlaid() == ["/u", "/a b", "/c:d", "/e"]
    (new,) = parse_mountinfo("5 1 0:9 / /m rw - overlay overlay rw,lowerdir+=/a,lowerdir+=/b")
    assert new.overlaid() == ["/a", "/b"]


@given(st.text(max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    for mount in parse_mountinfo(text):
        assert isinstance(mount, Mount)
        assert mount.overlaid() is not None


@given(st.integers(0, 5), st.integers(0, 200))
def test_a_table_that_is_cut_short_gives_its_whole_lines(seed: int, cut: int) -> None:
    text = (MACHINES / "cluster.txt").read_text(encoding="utf-8")
    whole = parse_mountinfo(text)
    part = parse_mountinfo(text[: 400 * seed + cut])
    assert part[:-1] == whole[: len(part)][:-1]  # the last one may be cut


def test_this_machine_is_known() -> None:
    assert any(mount.mount_point == "/" for mount in parse_mountinfo(Path("/proc/self/mountinfo").read_text()))
    kind = kind_of(os.path.dirname(__file__))
    assert kind.name
    assert kind_of("/dev/shm").medium is Medium.MEMORY


def _mounted(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")


@pytest.mark.slow
@pytest.mark.root
def test_a_real_overlay_and_a_real_loop_device(tmp_path: Path) -> None:
    below = kind_of(tmp_path)
    image, disk, upper, work, merged = (tmp_path / name for name in ("image", "disk", "upper", "work", "merged"))
    with image.open("wb") as file:
        file.truncate(32 << 20)
    for folder in (disk, upper, work, merged):
        folder.mkdir()
    if subprocess.run(["mkfs.ext4", "-q", str(image)], capture_output=True).returncode != 0:
        pytest.skip("no mkfs.ext4 here")
    _mounted("-o", "loop", str(image), str(disk))
    try:
        (disk / "low").write_bytes(b"x")
        kind = kind_of(disk / "low")
        assert kind.name.startswith("ext4 → loop")
        assert kind.name.endswith(f" → {below.name}")
        assert kind.medium is below.medium
        assert kind.other_cache is not None
        assert str(image) in kind.evidence
        _mounted("-t", "overlay", "overlay", "-o", f"lowerdir={disk},upperdir={upper},workdir={work}", str(merged))
        try:
            (merged / "high").write_bytes(b"x")
            assert kind_of(merged / "low").name == f"overlay → {kind.name}"  # it lies in the lower folder …
            assert kind_of(merged / "high").name == f"overlay → {below.name}"  # … and this one in the upper
        finally:
            subprocess.run(["umount", str(merged)], check=True)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.slow
@pytest.mark.root
def test_a_real_bind_mount_and_a_tmpfs_over_it(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    _mounted("--bind", str(source), str(target))
    try:
        assert kind_of(target).name == kind_of(source).name
        _mounted("-t", "tmpfs", "over", str(target))
        try:
            assert kind_of(target).medium is Medium.MEMORY
        finally:
            subprocess.run(["umount", str(target)], check=True)
    finally:
        subprocess.run(["umount", str(target)], check=True)
