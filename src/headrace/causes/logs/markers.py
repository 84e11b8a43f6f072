"""Lines that say what the loop does besides training: it saves, evaluates, uploads, is started again."""

import re
from dataclasses import dataclass
from enum import Enum

from .fields import NAN

_WORDS = re.compile(
    r"(?P<checkpoint>sav(?:ed|e|ing)\b.{0,60}?(?:checkpoint|ckpt|model|weights?|state|snapshot|optimizer)"
    r"|sav(?:ed|e|ing)\b.{0,120}?\.(?:pth?|ckpt|safetensors|bin|tar)\b"
    r"|(?:checkpoint|ckpt|model|weights?|configuration|snapshot)s?\b.{0,60}?\b"
    r"(?:saved|sav(?:e|ing)|written|writing|dump(?:ed|ing))"
    r"|(?:writ(?:e|ing|ten)|dump(?:ing|ed)?)\b.{0,40}?(?:checkpoint|ckpt|snapshot)|save_checkpoint"
    r"|(?:保存|写入|存储)(?:了|至|到)?.{0,20}?(?:检查点|模型|权重|ckpt|checkpoint|快照)|(?:检查点|模型|权重"
    r"|checkpoint).{0,20}?(?:已?保存|写入))"
    r"|(?P<evaluation>\b(?:running|start(?:ing|ed)?|begin(?:ning)?|end(?:ing)? of|finished|performing)\b.{0,20}?\b"
    r"(?:validation|evaluation|eval|test(?:ing)?)\b"
    r"|\b(?:Iter|Epoch)\((?:val|test)\)|\beval(?:uation)?_(?:loss|runtime|acc\w*|samples_per_second)\b|['\"]eval_"
    r"|\btesting net\b|\beval_start\b|\bevaluat(?:ing|ed)\b|\bvalidating\b|\bvalidat(?:ion|e)\b|^\s*Test:\s*\["
    r"|(?:\b|_)(?:val|valid|test)[_.][a-z]\w*\W{1,3}\d"
    r"|(?:开始|正在|进行|运行|完成)?(?:验证|评估|评测)(?!集))"
    r"|(?P<logging>\bupload(?:ing|ed)?\b|\bsync(?:ing|ed)\b.{0,30}?(?:wandb|run|metrics|logs?)|\bwandb:.{0,20}"
    r"?(?:sync|upload|wait)"
    r"|\b(?:writing|flushing|logging|log)\b.{0,20}?(?:images?|histograms?|tensorboard|summar(?:y|ies)|event "
    r"files?|metrics|figures?|videos?)"
    r"|(?:上传|写入|同步|记录)(?:.{0,10}?)(?:日志|指标|图像|图片|可视化|tensorboard))"
    r"|(?P<restart>\bresum(?:ed?|ing)\b.{0,40}?(?:checkpoint|from|epoch|step|training)|\brestart(?:ed|ing)\b|从."
    r"{0,20}恢复)",
    re.IGNORECASE,
)
# Lines that speak of these things without doing them.
_NOT_NOW = re.compile(
    r"\b(?:will|would|num_|every|interval|frequency|steps\s"
    r"*[:=]|strategy|config|args?|deprecat|warn|best_model|load(?:ed|ing)?\b.{0,20}checkpoint"
    r"|no (?:validation|eval))|每\s*\d+|间隔|加载.{0,10}(?:检查点|权重|模型)",
    re.IGNORECASE,
)
_STEP = re.compile(
    r"(?:step|iter(?:ation)?s?|checkpoint|ckpt|iters?)\D{0,3}(\d{1,9})(?!\d*\.\d)|at (\d+) (?:iterations|steps|iters)"
    r"|[/_-](\d{2,9})\.(?:pth?|ckpt|safetensors)",
    re.IGNORECASE,
)
_TOOK = re.compile(
    r"(?:took|in|time|耗时|用时|eval_runtime['\"]?\s*[:=])\s*[:=]?\s*['\"]?(\d+(?:\.\d+)?)\s*(ms|毫秒|s\b"
    r"|sec|seconds|秒|(?=['\",}]))",
    re.IGNORECASE,
)


class Doing(Enum):
    """What a line says the loop is doing."""

    CHECKPOINT = "checkpoint"
    EVALUATION = "evaluation"
    LOGGING = "logging"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Marker:
    """One such line: where it stands, and what step and duration it names itself (NaN: none)."""

    doing: Doing
    line: float
    at_s: float
    step: float
    took_s: float
    since_s: float = NAN  # the stamped line before it


def read_marker(text: str, *, line: float, at_s: float) -> Marker | None:
    """Return what a line says the loop is doing, if it says so.

    >>> read_marker("Saving checkpoint at 30 iterations", line=7, at_s=1.0)
    Marker(doing=<Doing.CHECKPOINT: 'checkpoint'>, line=7, at_s=1.0, step=30.0, took_s=nan, since_s=nan)
    >>> read_marker("will save a checkpoint every 500 steps", line=1, at_s=0.0) is None
    True
    """
    match = _WORDS.search(text)
    if match is None or match.lastgroup is None or _NOT_NOW.search(text):
        return None
    step, took = _STEP.search(text), _TOOK.search(text)
    number = float(next(group for group in step.groups() if group)) if step else NAN
    took_s = float(took[1]) * (1e-3 if took[2] in ("ms", "毫秒") else 1.0) if took else NAN
    return Marker(Doing(match.lastgroup), line, at_s, number, took_s)
