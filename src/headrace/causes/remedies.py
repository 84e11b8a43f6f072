"""What helps against each cause, what cannot, and which measurement decides what a log cannot."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from headrace.model import Bottleneck, Cause, Confidence, Finding, Severity, Text, gain_of


@dataclass(frozen=True)
class CauseAdvice:
    """Sentences that hold for a cause wherever it is found; figures of a run are in the evidence, not here."""

    fix: tuple[Text, ...]
    futile: tuple[Text, ...] = ()
    measure: tuple[Text, ...] = ()


def _texts(*said: str) -> tuple[Text, ...]:
    """Return sentences, each given in English and then in Chinese."""
    return tuple(Text(en, zh) for en, zh in zip(said[::2], said[1::2], strict=True))


_BUSY_SHARE = Text(
    "which of the two it is: run some hundred steps with `headrace.DataLoader`: `busy_share` in "
    "`loader.stats().workers` near 1 for all, the pool is too slow; well below for most, one worker or sample held up "
    "the others",
    "要区分两者：用 `headrace.DataLoader` 跑几百步，看 `loader.stats().workers` 里的 `busy_share`：都接近 1，是整池太"
    "慢；多数明显低于 1，是个别 worker 或样本拖住了其余的",
)
_OUT_OF_ORDER = Text(
    "a test of one line: `DataLoader(..., in_order=False)` (torch 2.6 or newer) speeds up a straggler, not a slow "
    "pool (it changes the order of samples: for the test only)",
    "一行就能做的试验（torch 2.6 及以上）：`DataLoader(..., in_order=False)` 能加快个别拖慢，对整池太慢无效（会改变样"
    "本顺序，只用于试验）",
)
_PREFETCH_FUTILE = Text(
    "a higher `prefetch_factor`: less is supplied than used, and a deeper buffer only costs memory",
    "加大 `prefetch_factor`：供给小于消耗，加深缓冲只会多占内存，不会增加吞吐",
)
_DEEPER_FUTILE = Text(
    "a higher `prefetch_factor`: the worker that is late has no time left to work ahead",
    "加大 `prefetch_factor`：迟到的那个 worker 没有余力提前干活",
)
_OTHER_NUMBER = Text(
    "`num_workers={workers}`, or another that does not fit the distance of heavy batches: they go round "
    "among the workers then; if one worker is slow itself, that changes little",
    "`num_workers={workers}`，或其他与重 batch 的间隔不合拍的数：重 batch 会轮流落到各个 worker；若是某个 worker 本身"
    "慢，则变化不大",
)
_FEWER_WORKERS_FUTILE = Text(
    "fewer workers with more prefetch: less throughput in proportion, unless it was measured to rise then",
    "减少 worker、加大预取：除非实测证明吞吐会上升，否则按比例下降",
)
_BIGGER_BATCH_FUTILE = Text(
    "a bigger batch: the loader gives the same samples a second, whatever the batch",
    "加大 batch：加载器每秒给出的样本数不变，与 batch 大小无关",
)
_LOADER_FUTILE = Text(
    "workers, prefetch, pinned memory: the loader is not involved", "调 worker、预取、锁页内存：这与加载器无关"
)
_SAME_CORES_FUTILE = Text(
    "more workers or prefetch: they would share the same cores", "增加 worker 或预取：用的还是同样的核心"
)
_HEADRACE = Text(
    "`headrace run --feed`, or `from headrace import DataLoader` in the script: it gives out samples instead of "
    "batches, so one slow sample holds up nobody; what a sample costs stays the same",
    "`headrace run --feed`（不改代码），或在脚本里用 `from headrace import DataLoader`：它按样本而不是按 batch 分派，"
    "单个慢样本不再拖住全队；样本本身的开销不变",
)
LOOP_MAKES_DATA = Text(
    'its data: `headrace.monitor(iterable)` or `headrace.phase("data")`: what a loop makes itself (a memory map, a '
    "generator, a thread) is not told from its other Python",
    '它的数据：用 `headrace.monitor(iterable)` 或 `headrace.phase("data")`；循环自己准备的数据（内存映射、生成器、线程'
    "）与其他 Python 代码分不开",
)
_KEEP_WORKERS, _KEPT_LOADER = _texts(
    "`persistent_workers=True`: the workers stay for the next epoch, with their memory and what they opened",
    "`persistent_workers=True`：worker 连同已打开的文件保留到下一个 epoch（也一直占着内存）",
    "make the loader once, before the loop ({place}), with `persistent_workers=True`: its workers stay as it does",
    "在循环之前只建一次加载器（{place}），并设 `persistent_workers=True`：worker 只能留到加载器被丢弃为止",
)
_SPLIT = Text(
    "where a sample's time goes: time reading, decoding and transforms apart for a hundred samples in one process",
    "样本的时间花在哪里：在单进程里取一百个样本，分别计时读取、解码和变换",
)
MORE_SUPPLY = Text(
    "more workers while cores are free, cheaper decoding, or faster storage",
    "有空闲核心就加 worker，否则降低解码开销，或用更快的存储",
)
LESS_A_SAMPLE = Text(
    'less to do for each sample: cheaper decoding, data on faster storage; how many workers, `tune="online"` finds out',
    '减少每个样本的开销：降低解码开销，或把数据放到更快的存储上；worker 数由 `tune="online"` 自己找',
)
FREE_CORES = Text(
    "free the cores that processes outside this training take (`top` names them): a job or cores of its own keep them "
    "away (`--exclusive`, `taskset`, `--cpuset-cpus`)",
    "腾出被训练之外的进程占用的核心：用 `top` 可看到是哪些进程；独占节点（`--exclusive`）或绑定专用核心（`taskset`、"
    "`--cpuset-cpus`）可避免",
)
_ADVICE: dict[Cause, CauseAdvice] = {
    Cause.BATCH_LOCKSTEP: CauseAdvice(
        fix=(_HEADRACE, MORE_SUPPLY),
        futile=(_PREFETCH_FUTILE, _FEWER_WORKERS_FUTILE),
        measure=(_BUSY_SHARE, _OUT_OF_ORDER, _SPLIT),
    ),
    Cause.LOADER_THROUGHPUT: CauseAdvice(
        fix=(MORE_SUPPLY, _HEADRACE), futile=(_PREFETCH_FUTILE, _BIGGER_BATCH_FUTILE), measure=(_SPLIT, _BUSY_SHARE)
    ),
    Cause.STRAGGLER_SAMPLE: CauseAdvice(
        fix=(
            *_texts(
                "find the samples that take long and treat them (cut, re-encode, skip)",
                "找出耗时长的样本并处理（裁剪、重新编码、跳过）",
                "enough batches ahead to hide one, slow time / step time: here more prefetch does help",
                "多备几个 batch 来掩盖它，深度 = 慢样本耗时 / 单步耗时：这里加大预取确实有用",
            ),
            _HEADRACE,
        ),
        futile=_texts(
            "more workers: the batch waits for one sample, not for a free worker",
            "增加 worker：这个 batch 等的是某一个样本，不是空闲的 worker",
        ),
        measure=_texts(
            "whether samples are slow or the storage pauses: `loader.stats().sample_times` of `headrace.DataLoader`; "
            "and whether the same steps are late in the next epoch with the same order",
            "是样本慢，还是存储偶尔停顿：看 `headrace.DataLoader` 的 `loader.stats().sample_times`，并在相同顺序下看下"
            "一个 epoch 是否还是这些步变慢",
        ),
    ),
    Cause.EPOCH_START: CauseAdvice(
        fix=(
            _KEEP_WORKERS,
            *_texts(
                "do less before a worker's first sample: open archives lazily, import less, fill no big buffer",
                "减少 worker 取第一个样本之前的工作：延迟打开归档文件、少导入模块、不填大缓冲",
            ),
        ),
        futile=_texts(
            "a higher `prefetch_factor`: nothing is prefetched across the end of an epoch",
            "加大 `prefetch_factor`：预取不会跨越 epoch 边界",
        ),
        measure=_texts(
            "what the time before the first batch is: print the time in `worker_init_fn` and at the first sample",
            "第一个 batch 之前的时间花在哪：在 `worker_init_fn` 和取第一个样本时各打印一次时间",
        ),
    ),
    Cause.CHECKPOINT: CauseAdvice(
        fix=_texts(
            "save while training goes on (`torch.distributed.checkpoint.async_save`)",
            "边训练边保存（`torch.distributed.checkpoint.async_save`）",
            "save to a local disk first, or less often: as far as you can afford to lose work",
            "先写本地盘再复制，或降低保存频率，以能承受的重算量为限",
        ),
        futile=(
            _LOADER_FUTILE,
            *_texts(
                "keeping fewer checkpoints: it frees space and adds deletions",
                "减少保留的检查点数量：只省空间，还会多出删除操作",
            ),
        ),
    ),
    Cause.EVALUATION: CauseAdvice(
        fix=_texts(
            "evaluate less often, or on a fixed part of the validation set (on all of it at the end)",
            "降低评估频率，或训练期间只评估验证集的固定一部分（最后再评估全部）",
            "if its start is what takes long: validation workers of its own that stay (`persistent_workers=True`)",
            "若耗时主要在启动，给验证加载器单独配置常驻 worker（`persistent_workers=True`）",
        ),
        futile=_texts("settings of the training loader: it is not involved", "调训练加载器的参数：这与它无关"),
    ),
    Cause.LOGGING: CauseAdvice(
        fix=_texts(
            "log less often, send fewer images, or write from a thread of its own",
            "降低记录频率、少传图片，或放到单独的线程里写",
        ),
        futile=_texts(
            "a longer print interval alone, if the loss is still read with `.item()` in every step",
            "只拉大打印间隔：如果每一步仍用 `.item()` 取 loss，开销还在",
        ),
    ),
    Cause.GC: CauseAdvice(
        fix=_texts(
            "`gc.freeze()` once model and data set are built; or `gc.disable()`, and `gc.collect()` once an epoch",
            "模型和数据集建好后调用 `gc.freeze()`；或 `gc.disable()`，每个 epoch 结束时 `gc.collect()`",
            "fewer Python objects: lists of millions of small ones (paths, annotations) as arrays",
            "减少 Python 对象：把上百万个小对象的列表（路径、标注）换成数组",
        ),
        futile=(_LOADER_FUTILE,),
    ),
    Cause.H2D_COPY: CauseAdvice(
        fix=_texts(
            "`pin_memory=True` in the loader and `tensor.to(device, non_blocking=True)`: both then go on at once",
            "设 `pin_memory=True`，并用 `tensor.to(device, non_blocking=True)`：拷贝就能与计算并行",
            "copy fewer bytes: as they are decoded, with the conversion to float on the device",
            "少拷一些：直接拷贝解码后的字节，到设备上再转成浮点",
        ),
        futile=_texts(
            "more workers: the batch is there, the copy is what takes time", "增加 worker：batch 已经就绪，耗时的是拷贝"
        ),
    ),
    Cause.CPU_THROTTLED: CauseAdvice(
        fix=_texts(
            "ask for more cores: `--cpus-per-task` (Slurm), `--cpus` (Docker), `resources.limits.cpu` (Kubernetes)",
            "申请更多核心：Slurm 用 `--cpus-per-task`，Docker 用 `--cpus`，Kubernetes 用 `resources.limits.cpu`",
            "as many threads as the quota has cores: `OMP_NUM_THREADS`, `torch.set_num_threads`, `num_workers`",
            "线程数按配额设：`OMP_NUM_THREADS`、`torch.set_num_threads`、`num_workers`",
        ),
        futile=(_SAME_CORES_FUTILE,),
    ),
    Cause.HOST_BOUND: CauseAdvice(
        fix=(),
        futile=_texts("more workers or prefetch: the batches are there", "增加 worker 或预取：batch 早已就绪"),
        measure=_texts(
            "the ceiling: `headrace run --replay train.py`: it trains for some steps on batches that are there",
            "上限是多少：`headrace run --replay train.py` 会用现成的 batch 训练若干步",
        ),
    ),
    Cause.CPU_CONTENDED: CauseAdvice(
        fix=(
            FREE_CORES,
            *_texts(
                "fewer at a time: `torch.set_num_threads`, `OMP_NUM_THREADS` and `num_workers` by the cores for each "
                "rank; fewer ranks on this machine, more cores",
                "减少同时运行的：`torch.set_num_threads`、`OMP_NUM_THREADS`、`num_workers` 按每个 rank 的核心数设，减"
                "少 rank，或申请更多核心",
            ),
        ),
        futile=(_SAME_CORES_FUTILE,),
    ),
    Cause.SWAP: CauseAdvice(
        fix=_texts(
            'less memory: fewer workers or batches ahead (`memory="8GiB"` of `headrace.DataLoader`); or a higher limit',
            '少用内存：减少 worker 或预取（`headrace.DataLoader` 的 `memory="8GiB"`）；或提高上限',
        ),
        futile=_texts(
            "more swap: it puts the kill off and makes every step slower",
            "加大交换区：只是推迟被杀，而且每一步都更慢",
            "more workers: each one takes memory",
            "增加 worker：每个都要占内存",
        ),
    ),
    Cause.MEMORY_PRESSURE: CauseAdvice(
        fix=_texts(
            "room for the files that are read again: less memory in workers and batches (`memory=`), a higher limit",
            "给反复读取的文件留出余地：减少 worker 和 batch 占用的内存（`memory=`），或提高上限",
            "if the data are larger than memory: read them in large pieces, in the order they lie on disk (tar shards)",
            "若数据大于内存：按磁盘上的顺序大块读取（tar 分片）",
        ),
        futile=_texts(
            "a warm-up pass over the files: what does not fit is dropped again",
            "先把文件预读一遍：放不下的还是会被挤掉",
        ),
    ),
    Cause.SHARD_BOUNDARY: CauseAdvice(
        fix=_texts(
            "open the next shard before this one ends, in a thread of the worker; or `headrace.Shards` with "
            "`headrace.DataLoader`, which reads ahead across shards",
            "在当前分片读完之前，用 worker 里的一个线程打开下一个；或用 `headrace.Shards` 配合 `headrace.DataLoader`，"
            "它跨分片预读",
            "less to do at the start: stream the archive (`mode='r|'`) or keep an index, no `.gz`, a local disk",
            "减少分片开头的工作：流式读取（`mode='r|'`）或保存索引；不要套 `.gz`；放到本地盘",
            "larger shards of different sizes: fewer starts, and the workers do not reach their ends together",
            "减少切换次数：用更大的分片，且大小错开，避免各 worker 同时读到末尾",
        ),
        futile=_texts(
            "more workers with the same shards: each of them opens its own, at the same moments",
            "分片不变而增加 worker：每个 worker 照样要打开自己的分片，而且往往同时打开",
        ),
    ),
    Cause.WORKER_HANG: CauseAdvice(
        fix=_texts(
            "next time `headrace watch PID --dump hung.txt`, while it hangs: the stacks of all processes",
            "下次趁卡住时运行 `headrace watch PID --dump hung.txt`：写出所有进程的调用栈",
            "a timeout on network reads and locks; no library with threads started before the fork "
            "(`multiprocessing_context='spawn'`, `cv2.setNumThreads(0)`)",
            "网络读取和锁设置超时；不要在 fork 之前启动带线程的库（`multiprocessing_context='spawn'`、"
            "`cv2.setNumThreads(0)`）",
            "`headrace.DataLoader(…, timeout=60, on_error='quarantine')`: it replaces the worker, and leaves out the "
            "sample",
            "`headrace.DataLoader(…, timeout=60, on_error='quarantine')`：替换该 worker，并剔除这样的样本",
        ),
        futile=_texts("waiting: torch's `timeout=0` means for ever", "干等：torch 的 `timeout=0` 表示永远等下去"),
    ),
    Cause.UNKNOWN: CauseAdvice(
        fix=(),
        measure=_texts(
            "log how long each step waits for its batch; `headrace.DataLoader` keeps it in `loader.stats().waits`",
            "记录每一步等待 batch 的时间；`headrace.DataLoader` 会记在 `loader.stats().waits` 里",
            "log when a checkpoint, an evaluation or an upload begins and when it ends",
            "在保存检查点、评估、上传开始和结束时各写一行带时间的日志",
            "look at the process in such a moment: `py-spy dump --pid PID` shows what it is doing",
            "在变慢的那一刻查看进程：`py-spy dump --pid PID` 能显示它正在做什么",
        ),
    ),
}


class HostLoss(Enum):
    """What a host loses its time to while the device waits for it, and what helps."""

    CORES = Text(
        "fewer workers, so that a core or two stay free for the training process; `headrace.DataLoader` needs fewer",
        "减少 worker，给训练进程留出一两个核心；`headrace.DataLoader` 所需的 worker 更少",
    )
    LOCK = Text(
        "`headrace.DataLoader(…, device=...)` instead of `pin_memory=True`: it pins and copies without a thread that "
        "needs the interpreter; other threads of the script into processes of their own",
        "用 `headrace.DataLoader(…, device=...)` 代替 `pin_memory=True`：锁页和拷贝都不占用解释器；脚本里的其他线程挪"
        "到单独的进程",
    )
    SYNC = Text(
        "read the loss every 50 steps (`.item()`, `print`), copies with `non_blocking=True` from pinned memory",
        "不要每步都取 loss（`.item()`、`print`），每 50 步取一次；从锁页内存用 `non_blocking=True` 拷贝",
    )
    PYTHON = Text(
        'the loop\'s own Python: `with headrace.phase("name")` around its parts says which; move it into the data set',
        '循环自身的 Python：用 `with headrace.phase("名称")` 包住各段即可看出是哪一段；移进数据集',
    )
    LAUNCHES = Text(
        "fewer, larger kernels: `torch.compile(model)`, CUDA graphs, `fused=True` optimizers, a bigger batch",
        "更少、更大的 kernel：`torch.compile(model)`、CUDA Graph、`fused=True` 的优化器、加大 batch",
    )


def advice_on(
    cause: Cause,
    *,
    has_ours: bool = False,
    is_iterable: bool = False,
    has_workers: bool = True,
    is_loader: bool = True,
    bottleneck: Bottleneck | None = None,
    uneven_workers: int = 0,
    tunes_itself: bool = False,
) -> CauseAdvice:
    """Return what helps against a cause, for a loader of which this is known.

    `has_ours`: it is ours already; `uneven_workers`: one of so many has most of the work; `tunes_itself`: it finds the
    number of its workers while it runs.
    """
    if not is_loader:  # a generator, a list: the loop makes its data in between
        return CauseAdvice(fix=(HostLoss.PYTHON.value,))
    advice = _ADVICE.get(cause, _ADVICE[Cause.UNKNOWN])
    if uneven_workers:
        other = _OTHER_NUMBER.filled(workers=uneven_workers + 1)
        advice = CauseAdvice(fix=(_HEADRACE, other), futile=(_DEEPER_FUTILE,), measure=advice.measure)
    idle: set[Text] = set()
    if has_ours or is_iterable or not has_workers:  # an iterable gives its samples in its own order, worker by worker
        idle |= {_HEADRACE, _OUT_OF_ORDER}
    if bottleneck in {
        Bottleneck.IPC_COPY,
        Bottleneck.SAMPLER,
    }:  # they lie there: the buffer is full, each has its price
        idle |= {_PREFETCH_FUTILE, _BIGGER_BATCH_FUTILE, _HEADRACE}
    if bottleneck is Bottleneck.SAMPLER:
        idle.add(MORE_SUPPLY)
    # whoever gives them out, samples come one at a time; or as slowly, while threads take the cores from each other
    if bottleneck in {Bottleneck.SERIAL, Bottleneck.THREADS}:
        idle |= {_FEWER_WORKERS_FUTILE, _HEADRACE, _OUT_OF_ORDER, MORE_SUPPLY}
    if not has_workers:
        idle |= {_PREFETCH_FUTILE, _FEWER_WORKERS_FUTILE, _BUSY_SHARE}
    instead = {MORE_SUPPLY: LESS_A_SAMPLE} if tunes_itself else {}
    parts = (advice.fix, advice.futile, advice.measure)
    return CauseAdvice(*(tuple(instead.get(one, one) for one in texts if one not in idle) for texts in parts))


def epoch_start_fixes(*, anew_at: str | Text = "", are_kept: bool = False) -> tuple[Text, ...]:
    """Return what helps against starts of epochs of a loader made anew there, or whose workers stay already."""
    keep = (_KEPT_LOADER.filled(place=anew_at),) if anew_at else () if are_kept else (_KEEP_WORKERS,)
    return *keep, *_ADVICE[Cause.EPOCH_START].fix[1:]


_CHEAPER_SAMPLES = Text(
    "less to compute for a sample: fewer transforms on the CPU; what is the same in every epoch computed once",
    "减少每个样本的计算：减少 CPU 上的变换；每个 epoch 都相同的结果只算一次并存下来",
)
_BOTTLENECK_FIX: dict[Bottleneck, Text] = {
    Bottleneck.CPU_DECODE: Text(
        "cheaper decoding: smaller pictures on disk, fewer transforms; `headrace.codecs` for JPEG, NPZ, volumes",
        "降低解码开销：在磁盘上存更小的图，减少 CPU 上的变换；JPEG、NPZ、体数据用 `headrace.codecs`",
    ),
    Bottleneck.GIL: Text(
        "`backend='process'` (or torch's own workers): threads take turns at the interpreter's lock; or NumPy, or a "
        "decoder that releases it",
        "改用 `backend='process'`（或 torch 自己的 worker）：线程要轮流持有解释器锁（GIL）；或换成 NumPy、会释放锁的解"
        "码库",
    ),
    Bottleneck.IO_BANDWIDTH: Text(
        "fewer bytes or faster storage: a copy on a local disk, a denser format; more workers share the same bandwidth",
        "减少字节数或换更快的存储：放到本地盘，或用更紧凑的格式；增加 worker 只是瓜分同样的带宽",
    ),
    Bottleneck.IO_LATENCY: Text(
        "more requests at a time: more workers than cores are fine here, or shards instead of many small files",
        "同时发出更多请求：这里 worker 可以多于核心数，或用分片代替大量小文件",
    ),
    Bottleneck.IPC_COPY: Text(
        "copy less between processes: `from headrace import DataLoader` writes samples once, into memory that is "
        "reused; or send less: a bigger batch, few large tensors, uint8 instead of float32",
        "减少进程间传递：`from headrace import DataLoader` 把样本一次写入可复用的内存；或少传：更大的 batch、少而大的"
        "张量、用 uint8 代替 float32",
    ),
    Bottleneck.SAMPLER: Text(
        "a cheaper `sampler` or `batch_sampler`: all indices of an epoch drawn at once; more workers bring nothing",
        "降低 `sampler` 或 `batch_sampler` 的开销：一次生成整个 epoch 的索引；增加 worker 没有用",
    ),
    Bottleneck.COLLATE: Text(
        "a cheaper `collate_fn`: what it does to each sample belongs into the data set, where all workers share it; "
        "padding and stacking into one tensor that is made once",
        "降低 `collate_fn` 的开销：对每个样本做的事放进数据集里，由所有 worker 分担；填充和堆叠直接写入一次分配好的张"
        "量",
    ),
    Bottleneck.THREADS: Text(
        "`OMP_NUM_THREADS={threads}` before the command, for NumPy's BLAS and OpenMP; "
        "`torch.set_num_threads({threads})` and `cv2.setNumThreads({threads})` in `worker_init_fn` (OpenCV: 0 for one "
        "thread)",
        "在命令前加 `OMP_NUM_THREADS={threads}`（对 NumPy 的 BLAS 和 OpenMP 有效）；在 `worker_init_fn` 里调用 "
        "`torch.set_num_threads({threads})` 和 `cv2.setNumThreads({threads})`（OpenCV 只用一个线程时设为 0）",
    ),
    Bottleneck.SERIAL: Text(
        "give each worker its own of what they share: a lock, connection, file or server with one thread "
        "(`headrace watch PID --dump` shows the line); more workers bring nothing",
        "让每个 worker 各用各的，不再共用锁、连接、文件、单线程的服务（`headrace watch PID --dump` 会显示等在哪一行）；"
        "增加 worker 没有用",
    ),
}


# The same for those who have our loader already, where that is another sentence.
_BOTTLENECK_FIX_WITH_OURS: dict[Bottleneck, Text] = {
    Bottleneck.IO_LATENCY: Text(
        "more requests at a time: `io_depth=` of `headrace.Shards`, `readahead=` of loose files, more workers",
        "同时发出更多请求：`headrace.Shards` 的 `io_depth=`、散文件的 `readahead=`，或增加 worker",
    ),
    Bottleneck.IPC_COPY: Text(
        "smaller samples in bytes (uint8 instead of float32): each is written once, and that is what takes long",
        "减小样本的字节数（用 uint8 代替 float32）：每个样本写进 batch 一次，耗时的正是这一步",
    ),
}


def bottleneck_fix(bottleneck: Bottleneck | None, *, has_ours: bool = False, decodes: bool = True) -> tuple[Text, ...]:
    """Return what helps where it was measured what holds the loader back; `decodes`: something is decoded there."""
    known = {**_BOTTLENECK_FIX, **(_BOTTLENECK_FIX_WITH_OURS if has_ours else {})}
    if not decodes:
        known[Bottleneck.CPU_DECODE] = _CHEAPER_SAMPLES
    return (known[bottleneck],) if bottleneck in known else ()


def make_finding(
    cause: Cause,
    share: float,
    evidence: Iterable[Text],
    *,
    figures: Mapping[str, float],
    confidence: Confidence = Confidence.CERTAIN,
    is_open: bool = False,
    advice: CauseAdvice | None = None,
    **others: Any,
) -> Finding:
    """Return a finding with what is advised on its cause, and others of its fields; `is_open`: measure more."""
    share, advice = min(1.0, share), advice or advice_on(cause)
    found = Finding(
        cause=cause,
        share=share,
        severity=Severity.of_share(share),
        confidence=confidence,
        evidence=tuple(evidence),
        fix=advice.fix,
        futile=advice.futile,
        measure=advice.measure if is_open or cause in {Cause.UNKNOWN, Cause.HOST_BOUND} else (),
        gain=gain_of(share),
        figures=figures,
    )
    return replace(found, **others)
