"""What can be wrong with a target, in words: what it is, what helps, which line to change."""

from dataclasses import dataclass

from headrace.model import Cause, Text


@dataclass(frozen=True)
class TargetProblem:
    """One problem; its blanks are filled with what was seen."""

    cause: Cause
    title: Text
    fix: tuple[Text, ...]
    change: Text | None = None


_OPEN_LATE = Text(
    "open it in the worker, at its first use: `if self._file is None: self._file = open(self.path)` in __getitem__",
    "在 worker 里首次使用时再打开：在 __getitem__ 中写 `if self._file is None: self._file = open(self.path)`",
)
_QUICK = Text("`headrace quick {target}` shows the whole traceback", "`headrace quick {target}` 会显示完整的报错堆栈")
_SPAWN = Text('DataLoader(…, multiprocessing_context="spawn")', 'DataLoader(…, multiprocessing_context="spawn")')

# By the name that stands in the JSON of `headrace doctor`.
PROBLEMS = {
    "import_fails": TargetProblem(
        Cause.UNKNOWN,
        Text("{target} cannot be loaded: {said}", "无法加载 {target}：{said}"),
        (_QUICK,),
        Text("headrace quick {target}", "headrace quick {target}"),
    ),
    "slow_import": TargetProblem(
        Cause.EPOCH_START,
        Text(
            "importing its module takes {took}, and each worker that starts anew does it again",
            "导入它的模块要 {took}，每个全新启动的 worker 都要再来一遍",
        ),
        (
            Text(
                "import what only the training needs in the function that trains, not at the top of the module",
                "只有训练才用到的东西，放到训练函数里再 import，不要放在模块顶层",
            ),
            Text(
                "persistent_workers=True: it is paid once, not in each epoch",
                "persistent_workers=True：只付一次，而不是每个 epoch 一次",
            ),
        ),
        Text("DataLoader(…, persistent_workers=True)", "DataLoader(…, persistent_workers=True)"),
    ),
    "needs_main_guard": TargetProblem(
        Cause.WORKER_LOST,
        Text(
            "the script starts when it is imported ({said}), so workers that start anew start it again",
            "脚本在被导入时就开始运行（{said}），全新启动的 worker 会再次运行它",
        ),
        (
            Text(
                "put what starts the training below `if __name__ == '__main__':`",
                "把启动训练的代码放到 `if __name__ == '__main__':` 之下",
            ),
        ),
        Text("if __name__ == '__main__':", "if __name__ == '__main__':"),
    ),
    "sample_fails": TargetProblem(
        Cause.CORRUPT_SAMPLE,
        Text("samples cannot be read: {said}", "样本无法读取：{said}"),
        (_QUICK,),
        Text("headrace quick {target}", "headrace quick {target}"),
    ),
    "corrupt_sample": TargetProblem(
        Cause.CORRUPT_SAMPLE,
        Text("sample {sample} cannot be read: {said}", "样本 {sample} 无法读取：{said}"),
        (
            Text(
                "repair or remove it; or let the loader leave it out, and name it",
                "修复或删除它；或让加载器跳过它并记名",
            ),
        ),
        Text(
            'headrace.DataLoader(…, on_error="quarantine", quarantine_file="bad.jsonl")',
            'headrace.DataLoader(…, on_error="quarantine", quarantine_file="bad.jsonl")',
        ),
    ),
    "sample_hangs": TargetProblem(
        Cause.WORKER_HANG,
        Text("{at} did not come within {seconds}: it {hang}", "{at}在 {seconds} 内没有返回：它{hang}"),
        (
            Text(
                "find out what it waits for at that place; a loader with timeout= leaves such a sample out",
                "查明它在那里等什么；设了 timeout= 的加载器会跳过这样的样本",
            ),
        ),
        Text(
            'headrace.DataLoader(…, num_workers=2, timeout=30, on_error="quarantine")',
            'headrace.DataLoader(…, num_workers=2, timeout=30, on_error="quarantine")',
        ),
    ),
    "shapes_differ": TargetProblem(
        Cause.CORRUPT_SAMPLE,
        Text(
            "samples {samples} have different shapes: the collation cannot stack them",
            "样本 {samples} 的形状不同，无法拼成一个 batch",
        ),
        (
            Text("crop, resize or pad them to one size in __getitem__", "在 __getitem__ 里裁剪、缩放或补齐到同一尺寸"),
            Text("or write a collate_fn that pads, or keeps a list", "或自己写 collate_fn：补齐，或保留为列表"),
        ),
        Text("DataLoader(…, collate_fn=my_collate)", "DataLoader(…, collate_fn=my_collate)"),
    ),
    "collate_fails": TargetProblem(
        Cause.CORRUPT_SAMPLE,
        Text("samples are fine, collating them fails: {said}", "样本正常，但拼 batch 失败：{said}"),
        (
            Text(
                "return tensors, arrays, numbers, texts, or dicts and lists of them from __getitem__ (never None)",
                "__getitem__ 返回张量、数组、数字、文本，或由它们组成的字典、列表（不要返回 None）",
            ),
            _QUICK,
        ),
        Text("headrace quick {target}", "headrace quick {target}"),
    ),
    "unpicklable": TargetProblem(
        Cause.WORKER_LOST,
        Text(
            "{part} cannot be pickled: workers that start anew (spawn, forkserver) cannot get it",
            "{part} 无法 pickle：全新启动的 worker（spawn、forkserver）拿不到它",
        ),
        (
            Text(
                "define functions at the top of a module instead of lambda, and open files and locks in the worker",
                "用模块顶层的函数代替 lambda；文件和锁在 worker 里再打开、创建",
            ),
            Text(
                "or leave it out of the state: `def __getstate__(self): return {{**vars(self), 'name': None}}`",
                "或不放进状态里：`def __getstate__(self): return {{**vars(self), 'name': None}}`",
            ),
        ),
        None,
    ),
    "shared_handle": TargetProblem(
        Cause.CORRUPT_SAMPLE,
        Text(
            "{part} ({path}) is opened before the workers are made: they read it with one position, and get each "
            "other's bytes",
            "{part}（{path}）在创建 worker 之前就打开了：它们共用一个读取位置，会读到彼此的字节",
        ),
        (_OPEN_LATE,),
        _OPEN_LATE,
    ),
    "copied_dataset": TargetProblem(
        Cause.MEMORY_PRESSURE,
        Text("each worker gets its own copy of {part}: {size}", "每个 worker 都会复制一份 {part}：{size}"),
        (
            Text(
                "keep it as one array: np.array(paths, dtype=np.bytes_), or a tensor; its bytes are shared",
                "存成一个数组：np.array(paths, dtype=np.bytes_)，或张量；其内容是共享的",
            ),
            Text(
                "`headrace plan {target}` says what that means for all workers",
                "`headrace plan {target}` 会算出全部 worker 要多少内存",
            ),
        ),
        Text("headrace plan {target}", "headrace plan {target}"),
    ),
    "frozen_random": TargetProblem(
        Cause.UNKNOWN,
        Text(
            "random draws repeat: a generator with one fixed state is copied into each worker",
            "随机结果重复：状态固定的随机数生成器被原样复制进每个 worker",
        ),
        (
            Text(
                "draw from torch's, random's or NumPy's global generator, which torch seeds in each worker anew, or "
                "make the generator in worker_init_fn from torch.initial_seed()",
                "使用 torch、random 或 NumPy 的全局生成器（torch 会在每个 worker 里重新设种子），"
                "或在 worker_init_fn 里用 torch.initial_seed() 创建生成器",
            ),
        ),
        Text(
            "self.rng = np.random.default_rng(torch.initial_seed())  # in worker_init_fn, not in __init__",
            "self.rng = np.random.default_rng(torch.initial_seed())  # 写在 worker_init_fn 里，而不是 __init__",
        ),
    ),
    "not_split": TargetProblem(
        Cause.UNKNOWN,
        Text("all workers give the same samples: each comes several times", "所有 worker 给出同样的样本：每个都会重复"),
        (
            Text(
                "take every n-th: `info = torch.utils.data.get_worker_info()`, then "
                "`islice(samples, info.id, None, info.num_workers)`",
                "每个 worker 取自己的一份：`info = torch.utils.data.get_worker_info()`，然后 "
                "`islice(samples, info.id, None, info.num_workers)`",
            ),
        ),
        Text(
            "itertools.islice(samples, info.id, None, info.num_workers)",
            "itertools.islice(samples, info.id, None, info.num_workers)",
        ),
    ),
    "fork_deadlock": TargetProblem(
        Cause.WORKER_HANG,
        Text("forked workers hang ({at}): one {hang}", "fork 出的 worker 卡死（{at}）：它{hang}"),
        (
            Text(
                "start workers anew: multiprocessing_context='spawn' (or 'forkserver')",
                "让 worker 全新启动：multiprocessing_context='spawn'（或 'forkserver'）",
            ),
            Text(
                "or start no threads before: cv2.setNumThreads(0), no OpenMP work while the data set is made",
                "或之前不要启动线程：cv2.setNumThreads(0)，创建数据集时不做 OpenMP 计算",
            ),
        ),
        _SPAWN,
    ),
    "worker_hangs": TargetProblem(
        Cause.WORKER_HANG,
        Text(
            "workers do not come back within {seconds} ({at}): one {hang}",
            "worker 在 {seconds} 内没有返回（{at}）：它{hang}",
        ),
        (Text("look at what it waits for there", "查看它在那里等待什么"),),
        Text("headrace explain --message KB-20", "headrace explain --message KB-20"),
    ),
    "worker_dies": TargetProblem(
        Cause.WORKER_LOST,
        Text("the process that makes samples {how} ({at})", "产出样本的进程{how}（{at}）"),
        (
            Text(
                "fetch that sample alone; a decoder that crashes on one file should not get it again",
                "单独读取那个样本；让解码器崩溃的文件不要再交给它",
            ),
        ),
        Text('headrace.DataLoader(…, on_error="quarantine")', 'headrace.DataLoader(…, on_error="quarantine")'),
    ),
    "out_of_memory": TargetProblem(
        Cause.MEMORY_PRESSURE,
        Text("too little memory: {took} (it was given {limit})", "内存不足：{took}（允许 {limit}）"),
        (
            Text(
                "`headrace plan {target}` says how many workers and batches fit",
                "`headrace plan {target}` 会说明能容纳多少 worker 和 batch",
            ),
        ),
        Text("headrace plan {target}", "headrace plan {target}"),
    ),
    "shm_full": TargetProblem(
        Cause.SHM_FULL,
        Text("/dev/shm is too small for the batches of the workers", "/dev/shm 太小，放不下 worker 的 batch"),
        (
            Text(
                "a larger one: `docker run --shm-size=16g`, or `--ipc=host`",
                "加大：`docker run --shm-size=16g`，或 `--ipc=host`",
            ),
            Text(
                "or headrace.DataLoader, whose batches do not lie in /dev/shm",
                "或使用 headrace.DataLoader，它的 batch 不放在 /dev/shm 里",
            ),
        ),
        Text("headrace explain --message KB-09", "headrace explain --message KB-09"),
    ),
    "fd_limit": TargetProblem(
        Cause.FD_LIMIT,
        Text("file descriptors run out", "文件描述符不够用"),
        (
            Text(
                "`ulimit -n 65536` in the shell that starts the training", "在启动训练的 shell 里执行 `ulimit -n 65536`"
            ),
            Text("close files that samples open: `with open(…)`", "样本打开的文件要关闭：`with open(…)`"),
        ),
        Text("ulimit -n 65536", "ulimit -n 65536"),
    ),
    "cuda_in_worker": TargetProblem(
        Cause.WORKER_LOST,
        Text("samples use CUDA ({at}): forked workers cannot", "样本用到了 CUDA（{at}）：fork 出的 worker 不能用"),
        (
            Text(
                "keep samples on the CPU (map_location='cpu'), and move batches in the training loop",
                "样本留在 CPU 上（map_location='cpu'），在训练循环里再搬运 batch",
            ),
        ),
        Text('batch.to("cuda", non_blocking=True)', 'batch.to("cuda", non_blocking=True)'),
    ),
}
