"""What a sample's time went into, in sentences, and what to do about its largest part."""

from __future__ import annotations

from headrace.model import PartKind, Text, format_bytes, format_seconds, format_share, three_digits

from .part_gains import CheaperPart
from .sample_parts import SampleParts

_SHOWN_FROM = 0.01  # of a sample
_TELLING_FROM = 0.05  # of a sample that is known as something: below, there is nothing to tell
_UNTIMED_FROM = 0.5  # of a sample in code that nobody timed
_MOST_NAMES = 2

_WORDS = {
    PartKind.READ: Text("reading {time}{names}", "读取 {time}{names}"),
    PartKind.DECODE: Text("decoding {time}{names}", "解码 {time}{names}"),
    PartKind.TRANSFORM: Text("transforms {time}{names}", "变换 {time}{names}"),
    PartKind.OTHER: Text("other {time}", "其他 {time}"),
}
_STAGE = Text('"{name}" {time}', "“{name}” {time}")
_STILL = Text("standing still {time}{bytes}", "停住 {time}{bytes}")
_KINDS = {
    PartKind.READ: Text("reading", "读取"),
    PartKind.DECODE: Text("decoding", "解码"),
    PartKind.TRANSFORM: Text("transforms", "变换"),
    PartKind.STAGE: Text("the stages that the data set names", "数据集自己命名的阶段"),
}
_HEAVY_FROM = 0.5


def parts_evidence(parts: SampleParts) -> list[Text]:
    """Return what a sample takes its time for; nothing where too little of it is known."""
    if parts.known_share < _TELLING_FROM:
        return []
    said: list[tuple[float, Text]] = []
    for kind in (PartKind.READ, PartKind.DECODE, PartKind.TRANSFORM):
        names = list(dict.fromkeys(part.name for part in parts.parts if part.kind is kind))[:_MOST_NAMES]
        shown = Text(f" ({', '.join(names)})", f"（{'、'.join(names)}）") if names else Text("", "")
        said.append((parts.seconds(kind), _named(_WORDS[kind], shown, parts.seconds(kind) / parts.num_samples)))
    for part in parts.parts:
        if part.kind is PartKind.STAGE:
            worked_s = part.own_s - part.still_s
            said.append((worked_s, _STAGE.filled(name=part.name, time=format_seconds(worked_s / parts.num_samples))))
    still_s = parts.still_s + sum(part.still_s for part in parts.parts if part.kind is PartKind.STAGE)
    size = format_bytes(int(parts.bytes_per_sample))
    read = Text(f" ({size} read meanwhile)", f"（其间读取 {size}）") if parts.bytes_per_sample > 0 else Text("", "")
    still = still_s / parts.num_samples
    time = format_seconds(still)
    said.append((still_s, Text(_STILL.en.format(time=time, bytes=read.en), _STILL.zh.format(time=time, bytes=read.zh))))
    shown_parts = [
        text for seconds, text in sorted(said, key=lambda one: -one[0]) if seconds >= _SHOWN_FROM * parts.total_s
    ]
    if parts.other_s >= _SHOWN_FROM * parts.total_s:
        shown_parts.append(_WORDS[PartKind.OTHER].filled(time=format_seconds(parts.other_s / parts.num_samples)))
    return [
        Text(
            f"on average a sample takes {format_seconds(parts.mean_s)}: {', '.join(one.en for one in shown_parts)}",
            f"单个样本平均 {format_seconds(parts.mean_s)}：{'、'.join(one.zh for one in shown_parts)}",
        )
    ]


def heavy_evidence(parts: SampleParts) -> list[Text]:
    """Return what the samples that take long take long for, where that is one thing."""
    if not parts.heavy:
        return []
    kind = max(parts.heavy, key=lambda one: parts.heavy[one])
    if kind not in _KINDS or parts.heavy[kind] < _HEAVY_FROM:
        return []
    share = format_share(min(1.0, parts.heavy[kind]))
    return [
        Text(
            f"in those, {_KINDS[kind].en} takes {share} of the time"
            if kind in {PartKind.READ, PartKind.DECODE}
            else f"in those, {_KINDS[kind].en} take {share} of the time",
            f"这些样本有 {share} 的时间用于{_KINDS[kind].zh}",
        )
    ]


def _named(words: Text, names: Text, seconds: float) -> Text:
    time = format_seconds(seconds)
    return Text(words.en.format(time=time, names=names.en), words.zh.format(time=time, names=names.zh))


_ADVICE = {
    "Pillow": Text(
        "`headrace.codecs.jpeg` or `headrace.codecs.png` instead of Pillow, decoding to the size that is needed",
        "用 `headrace.codecs.jpeg`、`headrace.codecs.png` 代替 Pillow，并直接解码到所需尺寸",
    ),
    "nibabel": Text("`headrace.codecs.nifti` instead of nibabel", "用 `headrace.codecs.nifti` 代替 nibabel"),
    "numpy.load": Text(
        "`headrace.codecs.npz` instead of `numpy.load`, or arrays saved without compression",
        "用 `headrace.codecs.npz` 代替 `numpy.load`，或保存为不压缩的数组",
    ),
    "torch.load": Text(
        "arrays in NPZ or safetensors instead of `torch.load`, which unpickles",
        "用 NPZ 或 safetensors 保存数组，代替需要反序列化的 `torch.load`",
    ),
}
_OPENCV = Text(
    "`headrace.codecs.jpeg`, decoding to the size that is needed, or smaller pictures on disk",
    "用 `headrace.codecs.jpeg` 直接解码到所需尺寸，或在磁盘上存更小的图",
)
_CHEAPER_DECODE = Text("cheaper decoding ({name})", "降低解码开销（{name}）")
_CHEAPER_TRANSFORM = Text(
    "cheaper transforms ({name}): crop before resize before conversion to float, or on the device for a whole batch",
    "降低变换开销（{name}）：先裁剪、再缩放、最后转浮点，或放到设备上对整个 batch 做",
)
_CHEAPER_STAGE = Text('a cheaper "{name}", the largest stage of a sample', "优化“{name}”，它是样本里最耗时的阶段")
_ESTIMATE = Text(
    "{what}: twice as fast it would make the training about {gain} ± {error} times as fast, at most {most} times if it "
    "cost nothing (estimate: it takes {share} of a task, the rest stays)",
    "{what}：若快一倍，训练约快到 {gain} ± {error} 倍；若完全不耗时，最多 {most} 倍（估计：它占任务时间的 {share}，其"
    "余不变）",
)


def cheaper_part_text(estimate: CheaperPart) -> Text:
    """Return what to do about the largest part, with what that would bring."""
    part = estimate.part
    if part.kind is PartKind.DECODE:
        what = _ADVICE.get(part.name, _CHEAPER_DECODE.filled(name=part.name))
        what = _OPENCV if part.name.startswith("cv2.") else what
    elif part.kind is PartKind.TRANSFORM:
        what = _CHEAPER_TRANSFORM.filled(name=part.name)
    else:
        what = _CHEAPER_STAGE.filled(name=part.name)
    figures = {
        "gain": three_digits(estimate.twice_gain),
        "error": three_digits(estimate.error),
        "most": three_digits(estimate.most_gain),
        "share": format_share(estimate.share),
    }
    return Text(_ESTIMATE.en.format(what=what.en, **figures), _ESTIMATE.zh.format(what=what.zh, **figures))


def untimed_advice(parts: SampleParts) -> tuple[Text, ...]:
    """Return how to learn more where most of a sample is code that nobody timed."""
    if parts.total_s <= 0 or parts.other_s < _UNTIMED_FROM * parts.total_s:
        return ()
    return (
        Text(
            'to learn which part of a sample it is: name the parts with `with headrace.stage("…"):` in the data set '
            "({share} of a sample is in code that is not known)",
            '想知道是样本的哪一部分：在数据集里用 `with headrace.stage("…"):` 给各部分命名（样本有 {share} 的时间在未知'
            "代码里）",
        ).filled(share=format_share(parts.other_s / parts.total_s)),
    )
