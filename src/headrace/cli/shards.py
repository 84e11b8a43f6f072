"""`headrace shards`: index tar shards, list them, and say what is wrong with them."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.model import Text, format_bytes

from .arguments import Commands, add_command, add_language, check_output
from .terminal import EXIT_FINDINGS, EXIT_OK, Terminal, line, printable, say, table_of

if TYPE_CHECKING:
    from rich.text import Text as Line

    from headrace.storage.shards import ShardFacts

_DESCRIPTION = """\
Index tar shards and say what is in them and what is wrong: cut or corrupt places with their offsets and what is still
readable, samples that lost something, members that are in no sample. The index lies beside each shard (or in the user's
cache, where that folder is read-only), and headrace.Shards uses it. Only headers are read, unless --verify is given.

FILE is a path, a folder, "x-{000000..000123}.tar", or a glob.
"""
_EPILOG = "exit codes: 0 all shards are whole, 1 damage, unpaired members or data that changed, 2 a file is not there"

_printable = partial(printable, keep="")
_MOST_ROWS = 50  # shards in the table: those with something wrong first
_MOST_LINES = 20
_AS_THEY_ARE = (  # in the document that --json prints
    *("path", "is_whole", "is_new_index", "num_samples", "num_members", "fields", "damaged_samples", "num_unpaired"),
    *("num_skipped", "was_verified", "wrong_data"),
)

_HEADS = Text("shard,samples,members,size,fields,state", "shard,样本数,文件数,大小,字段,状态")


def add_parser(commands: Commands, shared: argparse.ArgumentParser) -> None:
    summary = "index tar shards, list them, and find what is damaged"
    parser = add_command(commands, shared, "shards", run, summary, description=_DESCRIPTION, epilog=_EPILOG)
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="shards, as headrace.Shards takes them")
    rule = "a pairing rule, such as npz={key}_features.npz; may be given more than once (default: WebDataset's rule)"
    add("--pair", action="append", type=_pair, default=[], metavar="FIELD=PATTERN", help=rule)
    add("--fields", type=_names, metavar="NAME,…", help="fields that a sample must have; others are unpaired")
    add("--list", action="store_true", help="every sample: its key, its fields and their sizes")
    compared = "read all data and compare it with the checksums that --verify stored before"
    add("--verify", action="store_true", help=compared)
    add("--rebuild", action="store_true", help="index anew, even where the index is up to date")
    add("--index-dir", metavar="DIR", help="where the indexes lie (default: beside the shards)")
    add_language(parser)
    add("--json", action="store_true", help="print one JSON document, schema headrace/shards/1")


def _pair(text: str) -> tuple[str, str]:
    field, equals, pattern = text.partition("=")
    if not equals or not field or "{key}" not in pattern:
        raise argparse.ArgumentTypeError(f"{text!r} is no rule; write FIELD=PATTERN, such as npz={{key}}_features.npz")
    return field, pattern


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    from headrace.storage.shards import expand_urls, list_samples, survey_shards

    paths = expand_urls(args.files)
    if args.index_dir is not None:  # before all shards are read
        os.makedirs(args.index_dir, exist_ok=True)
        check_output(os.path.join(args.index_dir, "index"))
    pairing = dict(args.pair) or "webdataset"
    with terminal.progress(
        Text(f"reading the headers of shards ({len(paths)})", f"正在读取 {len(paths)} 个 shard 的文件头")
    ):
        how = {"fields": args.fields, "verify": args.verify, "rebuild": args.rebuild, "index_dir": args.index_dir}
        facts = list(survey_shards(paths, pairing=pairing, **how))
    samples_of = partial(list_samples, pairing=pairing, fields=args.fields)
    if args.json:
        document = _report_json(facts, samples_of if args.list else None)
        terminal.document(json.dumps(document, ensure_ascii=False))
    elif args.list:  # a line for each sample: shard, key, and each field with its size, between tabs
        for shard in (one for one in facts if not one.error):
            for key, sizes in samples_of(shard):
                told = " ".join(f"{name}:{size}" for name, size in sizes.items())
                terminal.document("\t".join(map(_printable, (shard.path, key, told))))
    else:
        shown = sorted(facts, key=lambda shard: shard.is_whole)[:_MOST_ROWS]
        rows = (_row(one) for one in facts if one in shown)
        terminal.result(table_of(_HEADS, rows, folded=dict.fromkeys((0, 4, 5))))
        terminal.parts(_report_lines(facts, urls=args.files, verify=args.verify))
    return EXIT_OK if all(shard.is_whole for shard in facts) else EXIT_FINDINGS


def _row(shard: ShardFacts) -> Sequence[Line | Text | str]:
    (state, style), fields = _state(shard), ", ".join(shard.fields[:8]) + (", …" if len(shard.fields) > 8 else "")
    counts = (str(shard.num_samples), str(shard.num_members), format_bytes(shard.size))
    return _printable(shard.path), *counts, _printable(fields), line(_printable(say(state)), style)


def _state(shard: ShardFacts) -> tuple[Text, str]:
    """Return what is to be said of a shard in a word, and its colour."""
    if shard.compression:
        packed = shard.compression
        return Text(f"compressed with {packed}; unpack it first", f"用 {packed} 压缩过，请先解压"), "red"
    if shard.is_no_tar:
        return Text("not a tar file", "不是 tar 文件"), "red"
    if shard.error:
        return Text(f"cannot be read: {shard.error}", f"无法读取：{shard.error}"), "red"
    if places := len(shard.damage) + len(shard.wrong_data):
        return Text(f"damaged: {places}", f"损坏：{places} 处"), "red"
    return Text("whole", "完好"), "green" if shard.is_whole else "yellow"


def _report_lines(facts: Sequence[ShardFacts], *, urls: Sequence[str], verify: bool) -> Iterator[Text | str]:
    """Give what is printed below the table."""
    samples, members = sum(shard.num_samples for shard in facts), sum(shard.num_members for shard in facts)
    size = format_bytes(sum(shard.size for shard in facts))
    yield Text(
        f"shards: {len(facts)}   samples: {samples}   members: {members}   size: {size}",
        f"共 {len(facts)} 个 shard，{samples} 个样本，{members} 个文件，{size}",
    )
    made = sum(shard.is_new_index for shard in facts)
    kept = sum(not shard.error for shard in facts) - made
    yield Text(f"indexes: {made} made, {kept} were up to date", f"索引：新建 {made} 个，{kept} 个已是最新")
    if verify and all(shard.was_verified for shard in facts if not shard.error):
        yield Text(
            "the data of all members was read and compared with the checksums in the index",
            "已读取全部文件的数据，并与索引中的校验和逐一比对",
        )
    elif verify:
        yield Text(
            "checksums of all data are in the index now; --verify compares with them from the next time on",
            "已把全部数据的校验和写入索引，下次使用 --verify 时会据此比对",
        )
    yield from _damage_lines(facts)
    yield from _unpaired_lines(facts)
    if count := sum(shard.num_skipped for shard in facts):
        name = _printable(next(shard.skipped[0][0] for shard in facts if shard.skipped))
        yield Text(
            f"Passed over, for they are no files: {count}, first {name}",
            f"有 {count} 个条目不是普通文件，已跳过，第一个是 {name}",
        )
    yield ""
    if all(shard.is_whole for shard in facts):
        given = urls[0] if len(urls) == 1 else list(urls)
        yield Text(
            f"Next: headrace.Shards({given!r}) in your script.",
            f"下一步：在训练脚本里使用 headrace.Shards({given!r})。",
        )
    elif all(shard.has_only_unpaired for shard in facts):
        yield Text(
            "Next: --pair FIELD=PATTERN, where names are not of the form key.field; in Shards, pairing=.",
            "下一步：文件名如果不是“键.字段”的形式，请用 --pair FIELD=PATTERN 说明规则（Shards 里是 pairing=）。",
        )
    elif all(shard.error for shard in facts):
        yield Text("Next: give the paths of whole, unpacked tar files.", "下一步：请给出完好且未压缩的 tar 文件。")
    else:
        yield Text(
            'Next: train on with what is whole: headrace.DataLoader(headrace.Shards(…), on_error="quarantine", '
            'quarantine_file="bad.jsonl"); or fetch the damaged shards again.',
            '下一步：用完好的部分继续训练：headrace.DataLoader(headrace.Shards(…), on_error="quarantine", '
            'quarantine_file="bad.jsonl")；或重新获取损坏的 shard。',
        )


def _damage_lines(facts: Sequence[ShardFacts]) -> Iterator[Text | str]:
    if any(shard.damage or shard.wrong_data for shard in facts):
        yield ""
        yield Text("Damage:", "损坏情况：")
    for shard in facts:
        path = _printable(shard.path)
        for damage in shard.damage[:_MOST_LINES]:
            yield Text(_printable(damage.told.en), _printable(damage.told.zh))
            yield Text(
                f"  still readable: {damage.before} members before it, {damage.after} after it",
                f"  仍可读取：之前 {damage.before} 个文件，之后 {damage.after} 个文件",
            )
        for key in map(_printable, shard.damaged_samples[:_MOST_LINES]):
            yield Text(f"  damaged sample: {key}", f"  受损样本：{key}")
        if shard.wrong_data:
            count, name = len(shard.wrong_data), _printable(shard.wrong_data[0])
            yield Text(
                f"{path}: members whose header or data is not what was indexed: {count}, first {name}",
                f"{path}：有 {count} 个文件的文件头或数据与索引不符，第一个是 {name}",
            )


def _unpaired_lines(facts: Sequence[ShardFacts]) -> Iterator[Text | str]:
    count = sum(shard.num_unpaired for shard in facts)
    if not count:
        return
    yield ""
    yield Text(f"Members in no sample: {count}", f"有 {count} 个文件不属于任何样本：")
    named = [member for shard in facts for member in shard.unpaired][:_MOST_LINES]
    for member in named:
        shard, name, en, zh = map(_printable, (member.shard, member.name, member.told.en, member.told.zh))
        yield Text(f"  {shard}: {name} ({en})", f"  {shard}：{name}（{zh}）")
    if more := count - len(named):
        yield Text(f"  … and {more} more", f"  ……另有 {more} 个")


def _report_json(facts: Sequence[ShardFacts], samples_of: Callable[[ShardFacts], Any] | None) -> dict[str, Any]:
    shards = []
    for shard in facts:
        told = {
            **{name: getattr(shard, name) for name in _AS_THEY_ARE},
            "error": shard.error or None,
            "index": shard.index or None,
            "size_bytes": shard.size,
            "damage": [damage.as_json() for damage in shard.damage],
            "unpaired": [{"name": m.name, "offset": m.offset, "reason": m.reason} for m in shard.unpaired],
        }
        if samples_of is not None and not shard.error:
            told["samples"] = [{"key": key, "fields": sizes} for key, sizes in samples_of(shard)]
        shards.append(told)
    return {
        "schema": "headrace/shards/1",
        "num_samples": sum(shard.num_samples for shard in facts),
        "is_whole": all(shard.is_whole for shard in facts),
        "shards": shards,
    }
