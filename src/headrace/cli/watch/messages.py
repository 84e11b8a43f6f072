"""The sentences of `headrace watch`, in English and in Chinese."""

from __future__ import annotations

from headrace.model import Text

ATTACHING = Text("attaching to {target}", "正在附加到 {target}")
TITLE = Text("watching {target} for {time}", "已观察 {target} {time}")
TRAINER = Text("trainer", "训练进程")
RANK = Text("rank {rank}", "rank {rank}")
NOW = Text("now", "当前")
WAITS = Text("waits for data", "等待数据")
WORKER = Text("worker", "worker")
BUSY = Text("busy", "忙碌")
CPU = Text("CPU", "CPU")
MEMORY = Text("memory", "内存")
READ = Text("read", "读取")
WHERE = Text("where", "位置")
PER_S = Text("{size}/s", "{size}/秒")
INTERVAL = Text("{share} ({low} to {high})", "{share}（{low} 到 {high}）")
MORE_WORKERS = Text("and {count} more workers", "另有 {count} 个 worker")
NO_WORKERS = Text(
    "no loader workers: the training process loads itself, or none run now",
    "没有加载 worker：由训练进程自己加载，或当前未启动",
)
STILL = Text("the same for {time}", "已停留 {time}")
MACHINE = Text("machine", "整机")
USED = Text("memory {used} of {limit} ({source})", "内存 {used} / {limit}（{source}）")
CPUS = Text("processors {share} busy", "CPU 占用 {share}")
SWAP = Text("swap-in {rate}", "换入 {rate}")
PRESSURE = Text("pressure {parts}", "压力（PSI） {parts}")
SHM = Text("/dev/shm {used} of {total}", "/dev/shm {used} / {total}")
GPU = Text("GPU {index} {share} busy, {used} of {total}", "GPU {index} 占用 {share}，显存 {used} / {total}")
ALARM = Text("ALARM {what}", "警报：{what}")
NO_STACKS = Text("no Python stacks: {problem}", "没有 Python 栈：{problem}")
ENDED = Text("process {pid} {how}", "进程 {pid} {how}")
DUMPED = Text("stacks of {count} processes are in {path}", "{count} 个进程的调用栈已写入 {path}")
ALERTS_LEFT_OUT = Text(
    "{count} alarms did not run the alert command, because it was still busy with others",
    "有 {count} 次警报没有执行警报命令，因为之前的还没结束",
)
MEMORY_SOURCES = {"machine": Text("the machine's", "整机")}
