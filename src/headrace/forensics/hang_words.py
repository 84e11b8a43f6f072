"""The sentences about a worker that does not come back, in English and in Chinese."""

from __future__ import annotations

from .hangs import Diagnosis, StuckKind

# Each begins with a verb: "worker 3 " goes before it. {at}, {file} and {detail} are empty or begin with a blank.
_EN = {
    StuckKind.GONE: "is gone",
    StuckKind.ENDED: "has ended",
    StuckKind.STOPPED: "is stopped (SIGSTOP or a terminal's ^Z): `kill -CONT {pid}` lets it go on",
    StuckKind.TRACED: "is held by a debugger (pid{detail})",
    StuckKind.FROZEN: "is frozen by its control group (a paused container or job)",
    StuckKind.DISK_SLEEP: (
        "is in an uninterruptible wait of the kernel, mostly for a disk or a file server{file}{detail}{at}{killable}"
    ),
    StuckKind.SWAPPED_OUT: "was swapped out and is reading its memory back{at}",
    StuckKind.GIL_WAIT: "waits for Python's interpreter lock, which another thread of it keeps busy{at}",
    StuckKind.BUSY_PYTHON: "is computing in Python{at}",
    StuckKind.BUSY_NATIVE: "is computing in native code:{detail}{at}",
    StuckKind.BUSY: "is computing, in native code or in a loop on one line{at}",
    StuckKind.FORK_DEADLOCK: (
        "is in a deadlock{at}: it waits for {lock} that no thread of it can ever let go; another thread of the "
        "training process held it at the moment of the fork, or the worker took it twice"
    ),
    StuckKind.DEADLOCK: "is in a deadlock{at}: it waits for {lock} that no thread of it can ever let go",
    StuckKind.LOCK_WAIT: "waits for a lock or another thread{at}",
    StuckKind.NETWORK: "waits for the network{at}",
    StuckKind.REMOTE_FILE: "waits for a network or FUSE file system{file}{detail}{at}",
    StuckKind.FILE_LOCK: "waits for a file lock that another process holds{file}{at}",
    StuckKind.CHILD: "waits for a process that it started{at}",
    StuckKind.SLEEP: "sleeps of its own accord{at}",
    StuckKind.IDLE: "has nothing to do: it waits for work",
    StuckKind.PIPE: "waits for a pipe{at}",
    StuckKind.FILE: "reads{file}{at}",
    StuckKind.UNKNOWN: "does not come back, and nothing seen from outside tells why{detail}{at}",
}
_ZH = {
    StuckKind.GONE: "已不存在",
    StuckKind.ENDED: "已经结束",
    StuckKind.STOPPED: "已被暂停（SIGSTOP 或终端的 ^Z）：执行 `kill -CONT {pid}` 可恢复",
    StuckKind.TRACED: "被调试器占住（pid{detail}）",
    StuckKind.FROZEN: "被所在的 cgroup 冻结（容器或作业被暂停）",
    StuckKind.DISK_SLEEP: "处于内核的不可中断等待，通常是磁盘或文件服务器没有响应{file}{detail}{at}{killable}",
    StuckKind.SWAPPED_OUT: "已被换出到交换区，正在读回内存{at}",
    StuckKind.GIL_WAIT: "在等待 Python 解释器锁（GIL），它的另一个线程一直占用着{at}",
    StuckKind.BUSY_PYTHON: "正在执行 Python 代码{at}",
    StuckKind.BUSY_NATIVE: "正在执行原生代码：{detail}{at}",
    StuckKind.BUSY: "正在计算：处于原生代码，或在同一行上循环{at}",
    StuckKind.FORK_DEADLOCK: (
        "已死锁{at}：它等待的{lock}，本进程中没有任何线程能够释放；fork 的一刻训练进程的另一个线程正持有它，"
        "或是 worker 自己重复加锁"
    ),
    StuckKind.DEADLOCK: "已死锁{at}：它等待的{lock}，本进程中没有任何线程能够释放",
    StuckKind.LOCK_WAIT: "在等待一把锁或另一个线程{at}",
    StuckKind.NETWORK: "在等待网络{at}",
    StuckKind.REMOTE_FILE: "在等待网络或 FUSE 文件系统{file}{detail}{at}",
    StuckKind.FILE_LOCK: "在等待被其他进程占用的文件锁{file}{at}",
    StuckKind.CHILD: "在等待它启动的子进程{at}",
    StuckKind.SLEEP: "正在主动休眠{at}",
    StuckKind.IDLE: "空闲，正在等待任务",
    StuckKind.PIPE: "在等待管道数据{at}",
    StuckKind.FILE: "正在读取{file}{at}",
    StuckKind.UNKNOWN: "迟迟没有返回，从外部看不出原因{detail}{at}",
}
_FORKED_POOL = {
    "en": "is in a deadlock{at}: it waits for threads of{detail}, which did not come along when it was forked",
    "zh": "已死锁{at}：它在等待{detail} 的线程，而这些线程没有随 fork 一起过来",
}
_LOCKS = {
    "en": {
        "": "a lock",
        "logging": "a lock of `logging`",
        "import": "the import lock",
        "multiprocessing": "a multiprocessing lock",
    },
    "zh": {
        "": "锁",
        "logging": "`logging` 的锁",
        "import": "导入锁",
        "multiprocessing": "multiprocessing 的锁",
    },
}
# What helps, by kind: a setting or command that exists.
_NEXT_EN = {
    StuckKind.FORK_DEADLOCK: (
        "multiprocessing_context='spawn' (or 'forkserver'); for OpenCV, cv2.setNumThreads(0) before the loader starts"
    ),
    StuckKind.NETWORK: "give the request a timeout in the data set",
    StuckKind.SWAPPED_OUT: "fewer workers (num_workers=) or less queued data (memory=)",
}
_NEXT_ZH = {
    StuckKind.FORK_DEADLOCK: (
        "multiprocessing_context='spawn'（或 'forkserver'）；若是 OpenCV，在启动加载器之前调用 cv2.setNumThreads(0)"
    ),
    StuckKind.NETWORK: "在数据集里为请求设置超时",
    StuckKind.SWAPPED_OUT: "减少 worker（num_workers=）或排队数据（memory=）",
}


def describe_stuck(diagnosis: Diagnosis, *, language: str = "en") -> str:
    """What holds a worker, as the rest of a sentence that begins with its name.

    >>> describe_stuck(Diagnosis(kind=StuckKind.STOPPED, pid=12))
    "is stopped (SIGSTOP or a terminal's ^Z): `kill -CONT 12` lets it go on"
    """
    is_chinese = language == "zh"
    locks = _LOCKS["zh" if is_chinese else "en"]
    sentence = (_ZH if is_chinese else _EN)[diagnosis.kind]
    if diagnosis.kind is StuckKind.FORK_DEADLOCK and diagnosis.detail not in locks:
        sentence = _FORKED_POOL["zh" if is_chinese else "en"]
    file = diagnosis.file
    killable = ""
    if not diagnosis.can_be_killed:
        killable = "；在此之前可能无法杀死" if is_chinese else "; until that answers, it may not react to SIGKILL"
    return sentence.format(
        pid=diagnosis.pid,
        at=_bracket(str(diagnosis.at) if diagnosis.at else "", is_chinese=is_chinese),
        file=f" {file.path}" if file is not None else "",
        detail=f" {diagnosis.detail}" if diagnosis.detail else "",
        lock=locks.get(diagnosis.detail, locks[""]),
        killable=killable,
    )


def next_step_for(diagnosis: Diagnosis, *, language: str = "en") -> str:
    """What to do about a worker that was ended for it; empty where nothing sure can be said."""
    return (_NEXT_ZH if language == "zh" else _NEXT_EN).get(diagnosis.kind, "")


def _bracket(text: str, *, is_chinese: bool) -> str:
    if not text:
        return ""
    return f"（{text}）" if is_chinese else f" ({text})"
