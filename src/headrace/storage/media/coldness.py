"""Whether what was read came from the storage, judged from what was checked. Pure."""

from __future__ import annotations

from headrace.model import Text

from .kinds import Medium, StorageKind
from .probe_result import Coldness

_ALL = 0.9  # of the bytes came from the device: readahead and shared blocks make it inexact
_HARDLY_ANY = 0.1
_NEARLY_NONE = 0.02  # of the pages were left in the cache

_IS_MEMORY = Text("it is memory: nothing is ever cold", "本身就是内存，没有“冷”可言")
_PAST = Text("read past the page cache (O_DIRECT)", "绕过页缓存读取（O_DIRECT）")
_BEHIND_FUSE = Text("the program behind FUSE may answer from a cache of its own", "FUSE 背后的程序可能从自己的缓存作答")
_DROPPED = Text(
    "dropped from the page cache, and a look showed that it was gone", "先逐出页缓存，再检查确认已不在缓存中"
)
_COUNTED = Text(
    "{share} of the bytes came from the device, by the kernel's own count",
    "按内核计数，{share} 的字节确实来自设备",
)
_FROM_CACHE = Text(
    "only {share} of the bytes came from the device, by the kernel's own count: the rest was in the page cache",
    "按内核计数，只有 {share} 的字节来自设备，其余来自页缓存",
)
_LEFT = Text(
    "{share} of it stayed in the page cache: mapped, locked or not yet written",
    "{share} 仍留在页缓存中：被映射、被锁定或尚未写回",
)
_NOT_CHECKED = Text(
    "dropping it from the page cache could not be checked: the files are not ours",
    "已请求逐出页缓存，但无法检查：这些文件不属于当前用户",
)
_NOT_KEPT = Text("this file system keeps nothing in the page cache", "该文件系统不把数据留在页缓存中")
_WARM = Text("read a moment before, so it is in the page cache", "刚刚读过，已在页缓存中")


def judge_coldness(
    kind: StorageKind, *, is_direct: bool, cached_before: float | None, fetched_share: float | None
) -> tuple[Coldness, Text]:
    """Return whether reads were cold, and how that is known.

    `cached_before` is the share that was in the page cache when reading began, `fetched_share` what block devices
    delivered of what was read; each `None` where it is not known. Of this machine's page cache alone: what a server, a
    host or a controller keeps is not to be seen from here.
    """
    if kind.medium is Medium.MEMORY:
        return Coldness.WARM, _IS_MEMORY
    # on a disk that is only guessed, a count of nothing may mean that it is another one
    if fetched_share is not None and kind.disks and (fetched_share >= _ALL or not kind.is_guessed):
        share = f"{100 * min(1.0, fetched_share):.0f} %"
        if fetched_share >= _ALL:
            return Coldness.COLD, _PAST if is_direct else _COUNTED.filled(share=share)
        state = Coldness.WARM if fetched_share < _HARDLY_ANY else Coldness.PARTLY
        return state, _FROM_CACHE.filled(share=share)
    if kind.is_fuse:
        return Coldness.UNKNOWN, _BEHIND_FUSE
    if is_direct and kind.medium is not Medium.ZFS:
        return Coldness.COLD, _PAST
    if cached_before is None:
        return Coldness.UNKNOWN, _NOT_CHECKED
    if cached_before <= _NEARLY_NONE:
        return Coldness.COLD, _DROPPED
    return Coldness.PARTLY, _LEFT.filled(share=f"{100 * cached_before:.0f} %")


def judge_warmth(fetched_share: float | None, *, cached_now: float | None) -> tuple[Coldness, Text]:
    """Return whether a second reading came from the cache; `cached_now`: the share of it that is there afterwards."""
    if fetched_share is None and cached_now is not None and cached_now < _ALL:
        return Coldness.UNKNOWN, _NOT_KEPT
    if fetched_share is not None and fetched_share > _HARDLY_ANY:
        share = f"{100 * min(1.0, fetched_share):.0f} %"
        return Coldness.PARTLY, _COUNTED.filled(share=share)
    return Coldness.WARM, _WARM


def caches_beneath(kind: StorageKind) -> tuple[Text, ...]:
    """Caches that cannot be emptied from here, so that even a cold read may not reach a disk."""
    found = []
    if kind.medium is Medium.VIRTUAL_DISK:
        found.append(Text("the host of the virtual disk may cache what was read", "虚拟磁盘的宿主机可能缓存了数据"))
    if kind.medium.is_network and not kind.is_fuse:
        found.append(Text("the server's cache cannot be dropped from here", "服务器端的缓存无法从这里清除"))
    if kind.is_fuse:
        found.append(Text("the program behind FUSE may have a cache of its own", "FUSE 背后的程序可能有自己的缓存"))
    if kind.medium is Medium.ZFS:
        found.append(Text("ZFS caches in its ARC, which cannot be dropped from here", "ZFS 的 ARC 缓存无法从这里清除"))
    return tuple(found)
