"""Why another process may not be looked into, and what would allow it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from headrace.model import Text
from headrace.signals.system import read_status, read_text

_SYS_PTRACE = 1 << 19


@dataclass(frozen=True, kw_only=True)
class Access:
    """What decides whether stacks may be read. Pure values: `explain` works on recorded ones too."""

    our_uid: int
    their_uid: int
    ptrace_scope: int | None  # None: this kernel has no Yama
    may_trace: bool  # CAP_SYS_PTRACE
    in_container: bool
    may_list_files: bool


def read_access(pid: int, *, root: Path = Path("/")) -> Access:
    """Read what holds for us and for the process."""
    status, own = read_status(root / f"proc/{pid}"), read_status(root / "proc/self")
    scope = read_text(root / "proc/sys/kernel/yama/ptrace_scope").strip()
    try:
        os.listdir(root / f"proc/{pid}/fd")
        may_list = True
    except OSError:
        may_list = False
    return Access(
        our_uid=os.geteuid(),
        their_uid=int(status.get("Uid", "-1").split()[0]),
        ptrace_scope=int(scope) if scope.isdigit() else None,
        may_trace=bool(int(own.get("CapEff", "0"), 16) & _SYS_PTRACE),
        in_container=(root / ".dockerenv").exists() or (root / "run/.containerenv").exists(),
        may_list_files=may_list,
    )


def explain_refusal(access: Access, pid: int) -> tuple[Text, Text]:
    """Say why stacks are refused, and what to do; the latter is a command that exists."""
    if access.their_uid not in (-1, access.our_uid) and access.our_uid != 0:
        return (
            Text(
                f"the process belongs to user {access.their_uid}, we are user {access.our_uid}",
                f"该进程属于用户 {access.their_uid}，而当前用户是 {access.our_uid}",
            ),
            Text(
                f"run `headrace watch {pid}` as that user, or with sudo",
                f"以该用户身份运行 `headrace watch {pid}`，或加 sudo",
            ),
        )
    if access.ptrace_scope and not access.may_trace:
        wanted = (
            Text(
                "kernel.yama.ptrace_scope is 3: nobody may attach until the machine restarts",
                "kernel.yama.ptrace_scope 为 3：重启之前任何人都不能附加",
            )
            if access.ptrace_scope == 3
            else Text(
                f"kernel.yama.ptrace_scope is {access.ptrace_scope}: only a parent or root may attach",
                f"kernel.yama.ptrace_scope 为 {access.ptrace_scope}：只有父进程或 root 可以附加",
            )
        )
        return wanted, Text(
            f"`sudo headrace watch {pid}`, or `sudo sysctl kernel.yama.ptrace_scope=0` until the next restart",
            f"运行 `sudo headrace watch {pid}`；或执行 `sudo sysctl kernel.yama.ptrace_scope=0`（重启后失效）",
        )
    if access.in_container and not access.may_trace:
        return (
            Text("this container has no CAP_SYS_PTRACE", "容器没有 CAP_SYS_PTRACE 权限"),
            Text(
                "start the container with `--cap-add SYS_PTRACE`, or run headrace on the host, with the pid there",
                "启动容器时加 `--cap-add SYS_PTRACE`；或在宿主机上用宿主机的 pid 运行 headrace",
            ),
        )
    return (
        Text("the system refuses to read the process's memory", "系统拒绝读取该进程的内存"),
        Text(f"`sudo headrace watch {pid}`", f"运行 `sudo headrace watch {pid}`"),
    )
