"""What is wrong with a shard: where, what was lost, and what is still readable."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from headrace.model import Text


class DamageKind(StrEnum):
    """How a tar file is damaged."""

    NO_END = "no_end"  # it ends after a member: cut at a boundary, or never finished
    CUT_IN_HEADER = "cut_in_header"
    CUT_IN_DATA = "cut_in_data"
    CORRUPT_HEADER = "corrupt_header"
    ZEROS_INSIDE = "zeros_inside"  # blocks of zeros, where other readers stop, and members after them
    AFTER_END = "after_end"  # something that is no member after the end
    SPARSE = "sparse"  # a member of `tar -S`: its pieces, and a map of where they belong
    ELSEWHERE = "elsewhere"  # a hard link to no member before it, or a file that began in another volume


_TOLD = {
    DamageKind.NO_END: Text(
        "{shard}, byte {offset}: it ends without end blocks: cut at a member, or never finished",
        "{shard}，第 {offset} 字节：没有结束块就到了文件末尾，可能在两个文件之间被截断，也可能没有写完",
    ),
    DamageKind.CUT_IN_HEADER: Text(
        "{shard}, byte {offset}: it is cut inside a header ({size} bytes of it are left)",
        "{shard}，第 {offset} 字节：文件头被截断，只剩 {size} 字节",
    ),
    DamageKind.CUT_IN_DATA: Text(
        "{shard}, byte {offset}: the data of {member} is cut, {size} bytes are missing",
        "{shard}，第 {offset} 字节：{member} 的数据被截断，缺 {size} 字节",
    ),
    DamageKind.CORRUPT_HEADER: Text(
        "{shard}, byte {offset}: a corrupt header; {size} bytes are lost up to the next valid one",
        "{shard}，第 {offset} 字节：文件头损坏，到下一个完好的文件头之间丢失 {size} 字节",
    ),
    DamageKind.ZEROS_INSIDE: Text(
        "{shard}, byte {offset}: {size} bytes of zeros between members; other readers stop there",
        "{shard}，第 {offset} 字节：文件之间夹着 {size} 字节的零，其他读取程序会在此停止",
    ),
    DamageKind.AFTER_END: Text(
        "{shard}, byte {offset}: {size} bytes after the end are no tar",
        "{shard}，第 {offset} 字节：结束之后还有 {size} 字节不属于 tar 的内容",
    ),
    DamageKind.SPARSE: Text(
        "{shard}, byte {offset}: {member} is a sparse member, which is not read: pack it again without tar -S",
        "{shard}，第 {offset} 字节：{member} 以稀疏格式存储，无法读取；请重新打包，不要使用 tar -S",
    ),
    DamageKind.ELSEWHERE: Text(
        "{shard}, byte {offset}: the data of {member} is not in this shard (a hard link, or begun in another volume): "
        "pack it again with tar --hard-dereference, in one volume",
        "{shard}，第 {offset} 字节：{member} 的数据不在这个 shard 里（硬链接，或从另一分卷接续）；"
        "请用 tar --hard-dereference 重新打包成一卷",
    ),
}


@dataclass(frozen=True, kw_only=True)
class DamagedPlace:
    """One place in a shard that is not as it should be.

    >>> print(DamagedPlace(shard="a.tar", kind=DamageKind.NO_END, offset=1536, before=3, member="x.jpg"))
    a.tar, byte 1536: it ends without end blocks: cut at a member, or never finished; still readable: 3 members before \
it, 0 after it
    """

    shard: str
    kind: DamageKind
    offset: int
    size: int = 0  # bytes that could not be read as members
    before: int = 0  # members before it that are whole
    after: int = 0  # members after it that are whole
    member: str = ""  # the one that was cut or cannot be read, or the last before the place

    @property
    def told(self) -> Text:
        return _TOLD[self.kind].filled(shard=self.shard, offset=self.offset, size=self.size, member=self.member)

    def __str__(self) -> str:
        return f"{self.told.en}; still readable: {self.before} members before it, {self.after} after it"

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON holds it, without the shard."""
        return {name: value for name, value in vars(self).items() if name != "shard"}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], shard: str) -> Self:
        return cls(**{**document, "kind": DamageKind(document["kind"]), "shard": shard})
