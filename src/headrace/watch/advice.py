"""The sentences of what was watched: evidence and what helps, in English and in Chinese."""

from __future__ import annotations

from headrace.model import Text

from .stack_reading import Activity
from .worker_reading import WorkerActivity

ACTIVITIES = {
    Activity.DATA_WAIT: Text("waiting for data", "等待数据"),
    Activity.COMPUTE: Text("computing", "计算"),
    Activity.H2D_COPY: Text("copying to the GPU", "拷贝到 GPU"),
    Activity.SYNCHRONISATION: Text("synchronising", "同步等待"),
    Activity.CHECKPOINT: Text("saving a checkpoint", "保存检查点"),
    Activity.EVALUATION: Text("evaluating", "评估"),
    Activity.LOGGING: Text("logging", "写日志"),
    Activity.GC: Text("collecting garbage", "垃圾回收"),
    Activity.OTHER: Text("something else", "其他"),
    Activity.UNKNOWN: Text("not known", "未知"),
}
DOING = {
    WorkerActivity.IDLE: Text("idle", "空闲"),
    WorkerActivity.READING: Text("reading", "读取"),
    WorkerActivity.DECODING: Text("decoding", "解码"),
    WorkerActivity.COLLATING: Text("collating", "组 batch"),
    WorkerActivity.SENDING: Text("sending", "发送"),
    WorkerActivity.BLOCKED: Text("blocked", "阻塞"),
    WorkerActivity.STOPPED: Text("stopped", "已暂停"),
    WorkerActivity.STARTING: Text("starting", "启动中"),
    WorkerActivity.UNKNOWN: Text("not known", "未知"),
}
SHARE_OF = {
    activity: Text(
        f"{name.en}: {{share}} of the time ({{low}} to {{high}} at 95 % confidence, {{samples}} samples of its stack)",
        f"{name.zh}：占时间的 {{share}}（95% 置信区间 {{low}} 到 {{high}}，{{samples}} 次栈采样）",
    )
    for activity, name in ACTIVITIES.items()
}
BUSY_ONE = Text("its one worker is busy {middle} of the time", "唯一的 worker 忙碌时间占比为 {middle}")
BUSY = Text(
    "{count} workers are busy {low} to {high} of the time, {middle} in the middle",
    "{count} 个 worker 的忙碌时间占比为 {low} 到 {high}，中位 {middle}",
)
PROCESSORS = Text("the machine's processors are {share} busy", "整机 CPU 占用 {share}")
ONE_BUSY = Text(
    "{name} (pid {pid}) is busy while most of the others are idle: {place}",
    "{name}（pid {pid}）一直在忙，其余多数空闲：{place}",
)
IN_PROCESS = Text(
    "the training process loads the data itself (num_workers=0)", "数据由训练进程自己加载（num_workers=0）"
)
STARTING = Text("most of it is the start of the workers of an epoch", "大部分时间花在每个 epoch 启动 worker 上")
BOTH_WAIT = Text(
    "the loop waits although no worker is busy most of the time: they wait for each other",
    "训练循环在等数据，而 worker 多数时间也不忙：双方互相等待",
)
EVALUATION_WAITS = Text("{share} of the evaluation is a wait for data", "评估时间中有 {share} 在等数据")
STUCK = Text(
    "{name} (pid {pid}) has stood at the same place for {time}: {place}",
    "{name}（pid {pid}）停在同一处已有 {time}：{place}",
)
SWAPPED = Text("{size} were read back from swap in {time}", "{time} 内从交换区读回了 {size}")
PRESSED = Text("some task waited for memory {share} of the time (PSI)", "有 {share} 的时间存在任务在等内存（PSI）")
SHM = Text("/dev/shm was {share} full", "/dev/shm 已用 {share}")
MEMORY_SEEN = Text("memory in use: at most {share} of the limit", "内存占用：最高达上限的 {share}")
FEW = Text(
    "only {samples} samples: less than a few steps may have passed", "只有 {samples} 次采样：可能还不到几步的时间"
)
NO_STACKS = Text(
    "without Python stacks ({problem}) waits are known by the pipe of the workers alone, and phases not at all",
    "没有 Python 栈（{problem}），只能凭 worker 的管道判断是否在等数据，无法区分各阶段",
)
WATCH_LONGER = Text(
    "watch for longer: `headrace watch PID --duration 60`", "延长观察时间：`headrace watch PID --duration 60`"
)

_OURS = Text(
    "`from headrace import DataLoader`: it gives out samples instead of batches, so the waits become even and one slow "
    "sample holds up nobody; what a sample costs stays the same",
    "改用 `from headrace import DataLoader`：它按样本而不是按 batch 分派，等待变得均匀，单个慢样本不再拖住全队；"
    "但样本本身的开销不变",
)
_DEFAULT_COLLATION = Text(
    "without a `collate_fn` of its own, `headrace.DataLoader` writes each sample straight into its batch",
    "不自定义 `collate_fn` 时，`headrace.DataLoader` 会把每个样本直接写进 batch",
)
WORKERS_AT_ALL = (
    Text(
        "`num_workers=` one for each free core: then loading overlaps with training",
        "设置 `num_workers=`，每个空闲核一个：加载即可与训练重叠",
    ),
)
KEEP_WORKERS = (
    Text(
        "`persistent_workers=True`: workers stay from one epoch to the next",
        "`persistent_workers=True`：worker 跨 epoch 保留",
    ),
)
SUPPLY = (
    Text(
        "find out what the workers do: `pip install headrace[stacks]` and watch again",
        "先弄清 worker 在做什么：`pip install headrace[stacks]` 后再观察一次",
    ),
)
DECODING = (
    Text(
        "more workers while cores are free, or cheaper decoding (`headrace.codecs`, smaller or pre-processed samples)",
        "有空闲核就增加 worker；否则降低解码开销（`headrace.codecs`，更小或预处理过的样本）",
    ),
    _OURS,
)
DECODING_ON_A_FULL_CPU = (
    Text(
        "cheaper decoding (`headrace.codecs`, smaller or pre-processed samples) or more cores: more workers would only "
        "share the same processors",
        "降低解码开销（`headrace.codecs`，更小或预处理过的样本）或增加 CPU 核：再加 worker 也只是分摊同样的核",
    ),
    _OURS,
)
READING = (
    Text(
        "data on faster storage, in fewer and larger files, or cached; more workers help only if the storage answers "
        "several readers at once",
        "把数据放到更快的存储、合并成更少更大的文件，或加缓存；只有存储能同时服务多个读者时，增加 worker 才有用",
    ),
    _OURS,
)
COLLATING = (
    Text(
        "a cheaper `collate_fn`: what it does to each sample belongs into the data set, where all workers share it",
        "降低 `collate_fn` 的开销：对每个样本做的事放进数据集里，由所有 worker 分担",
    ),
    _DEFAULT_COLLATION,
)
HANDING_OVER = (
    Text(
        "smaller batches in bytes (uint8 instead of float32, crop before collation)",
        "减小 batch 的字节数（用 uint8 代替 float32，先裁剪再组 batch）",
    ),
    _OURS,
)
BLOCKED = (
    Text(
        "look where they wait: `headrace watch PID --dump` shows stacks, locks and open files",
        "看它们在等什么：`headrace watch PID --dump` 会给出调用栈、锁和打开的文件",
    ),
)
STRAGGLER = (
    Text(
        "look at the samples that take long; they are the same in every epoch if the data are to blame",
        "检查耗时长的样本；若问题在数据，每个 epoch 都是同一批",
    ),
    _OURS,
)
BATCHES_AHEAD = (
    Text(
        "a higher `prefetch_factor`, if single batches take much longer than others",
        "若个别 batch 明显更久，可加大 `prefetch_factor`",
    ),
    _OURS,
)
PREFETCH_FUTILE = (
    Text(
        "a higher `prefetch_factor`: the workers have no time left, so a deeper buffer only takes longer to run dry",
        "加大 `prefetch_factor`：worker 已经没有余力，缓冲再深也只是晚一点见底",
    ),
)
_ENDS_HANGING = Text(
    "`from headrace import DataLoader` ends a sample that hangs and names it; torch's `timeout=` ends the run",
    "改用 `from headrace import DataLoader`：卡死的样本会被终止并指名；torch 加载器的 `timeout=` 则是直接终止训练",
)
STUCK_FIX = (
    Text(
        "`headrace watch {pid} --dump` shows its stack, its locks and its open files",
        "`headrace watch {pid} --dump` 可查看它的调用栈、锁和打开的文件",
    ),
    _ENDS_HANGING,
)
STOPPED_FIX = (Text("`kill -CONT {pid}` lets it go on", "执行 `kill -CONT {pid}` 可让它继续"),)
PHASES = {
    Activity.CHECKPOINT: (
        Text(
            "save less often, or asynchronously (`torch.distributed.checkpoint.async_save`)",
            "降低保存频率，或异步保存（`torch.distributed.checkpoint.async_save`）",
        ),
    ),
    Activity.LOGGING: (Text("log less often", "降低写日志的频率"),),
    Activity.GC: (
        Text(
            "collect less often: `gc.freeze()` after the start, or `gc.disable()`",
            "减少回收：启动后调用 `gc.freeze()`，或 `gc.disable()`",
        ),
    ),
    Activity.H2D_COPY: (
        Text(
            "`pin_memory=True` and `.to(device, non_blocking=True)`",
            "使用 `pin_memory=True` 与 `.to(device, non_blocking=True)`",
        ),
    ),
    Activity.EVALUATION: (Text("evaluate less often, or on fewer samples", "降低评估频率，或减少评估样本"),),
}
LESS_MEMORY = (
    Text(
        "fewer workers (`num_workers=`) or fewer batches ahead (`prefetch_factor=`)",
        "减少 worker（`num_workers=`）或预取的 batch（`prefetch_factor=`）",
    ),
)
_LARGER_SHM = Text(
    "a larger one (`docker run --shm-size 8g`), or `from headrace import DataLoader`, which does not use it",
    "加大共享内存（`docker run --shm-size 8g`），或改用不依赖它的 `from headrace import DataLoader`",
)
SHM_FIX = (_LARGER_SHM,)
_WHO_REPLACES = Text(
    "`headrace explain` on the training's log names the cause; headrace's own loader replaces the worker",
    "用 `headrace explain` 分析训练日志可找到原因；headrace 的加载器会补上 worker 并继续训练",
)
WORKER_LOST = (_WHO_REPLACES,)
TRAINER_LOST = (Text("`headrace explain` on the training's log", "用 `headrace explain` 分析训练日志"),)

# What is said instead to those who have our loader already; None: nothing.
_WITH_OURS: dict[Text, Text | None] = {
    _OURS: None,
    READING[0]: Text(
        "data on faster storage, or in shards (`headrace.Shards`), which are read ahead in large pieces: `io_depth=` "
        "is how many at a time; `readahead=` does it for loose files",
        "把数据放到更快的存储，或打成分片（`headrace.Shards`），会提前大块读取：`io_depth=` 是同时读取的块数；散文件用 "
        "`readahead=`",
    ),
    HANDING_OVER[0]: Text(
        "smaller samples in bytes (uint8 instead of float32, crop before the sample is returned): each is written once "
        "into its batch, and that is what takes long",
        "减小样本的字节数（用 uint8 代替 float32，返回前先裁剪）：每个样本写进 batch 一次，耗时的正是这一步",
    ),
    _ENDS_HANGING: Text(
        "`timeout=60, on_error='quarantine'` in the loader: a sample that hangs is ended, named and left out",
        "在加载器里设置 `timeout=60, on_error='quarantine'`：卡死的样本会被终止、指名并剔除",
    ),
    _LARGER_SHM: Text(
        "a larger one (`docker run --shm-size 8g`); the loader itself does not use it",
        "加大共享内存（`docker run --shm-size 8g`）；加载器本身并不使用它",
    ),
    _WHO_REPLACES: Text(
        "the loader replaces the worker and says in the log what killed it; `headrace explain` on the log says more",
        "加载器会补上 worker，并在日志里说明它因何被杀；用 `headrace explain` 分析日志可了解更多",
    ),
}


def advice_for(fix: tuple[Text, ...], *, has_ours: bool) -> tuple[Text, ...]:
    """Return what helps somebody with torch's loader, or (`has_ours`) with ours."""
    if not has_ours:
        return fix
    return tuple(said for text in fix if (said := _WITH_OURS.get(text, text)) is not None)
