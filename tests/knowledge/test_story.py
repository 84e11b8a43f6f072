"""Several messages of one log: the first cause comes first, and what settles a cause is said."""

from headrace.knowledge import MessageFound, MessageScanner, look_up

KILLED = "RuntimeError: DataLoader worker (pid {pid}) is killed by signal: Killed. "
EXITED = "RuntimeError: DataLoader worker (pid(s) {pid}) exited unexpectedly"
KERNEL = (
    "[839201.1] {scope}: Killed process {pid} (pt_data_worker) total-vm:41231232kB, anon-rss:12582912kB, "
    "file-rss:81920kB, shmem-rss:4194304kB, UID:1000 pgtables:31000kB oom_score_adj:0"
)
SLURM = "slurmstepd: error: Detected 1 oom_kill event in StepId=42.batch. Some of the step tasks have been OOM Killed."


def story(*lines: str) -> dict[str, MessageFound]:
    scanner = MessageScanner()
    scanner.scan_chunk("\n".join(["epoch 1 loss 0.3", *lines, "bye"]).encode())
    return {one.entry.id: one for one in scanner.found()}


def test_the_kernel_s_line_with_the_same_pid_decides() -> None:
    found = story(
        KILLED.format(pid=22048),
        EXITED.format(pid=22048),
        KERNEL.format(scope="Memory cgroup out of memory", pid=22048),
    )
    assert list(found) == ["KB-47", "KB-01", "KB-02"]
    assert found["KB-01"].decided == "memory_limit"
    assert "Killed process 22048" in found["KB-01"].because
    assert found["KB-01"].cause == "memory_pressure"
    assert [cause.name for cause in found["KB-01"].open_causes] == ["memory_limit"]
    assert found["KB-02"].explained_by == "KB-01"
    assert found["KB-47"].values["shmem_rss_kb"] == ("4194304",)


def test_the_machine_s_memory_is_another_cause_than_a_limit() -> None:
    found = story(KILLED.format(pid=7), KERNEL.format(scope="Out of memory", pid=7))
    assert found["KB-01"].decided == "machine_memory"


def test_another_pid_decides_nothing() -> None:
    found = story(KILLED.format(pid=7), KERNEL.format(scope="Out of memory", pid=8))
    assert found["KB-01"].decided == ""
    assert len(found["KB-01"].open_causes) == 3
    assert found["KB-01"].cause == ""  # out of memory, or somebody's kill: open


def test_slurm_s_line_decides_without_a_pid() -> None:
    found = story(KILLED.format(pid=7), SLURM)
    assert list(found) == ["KB-48", "KB-01"]
    assert found["KB-01"].decided == "memory_limit"


def test_alone_a_killed_worker_stays_open_with_its_checks() -> None:
    (found,) = look_up(KILLED.format(pid=7))
    assert found.decided == ""
    assert all(cause.check.en and cause.check.zh for cause in found.open_causes)


def test_a_bus_error_alone_is_not_called_shared_memory() -> None:
    (found,) = look_up("RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that …")
    assert found.cause == ""
    assert {cause.cause for cause in found.open_causes} == {"shm_full", "corrupt_sample"}


def test_a_scheduler_s_end_explains_terminated_workers() -> None:
    found = story(
        "slurmstepd: error: *** STEP 42.0 ON gpu07 CANCELLED AT 2024-03-01T10:00:25 DUE TO TIME LIMIT ***",
        "RuntimeError: DataLoader worker (pid 9) is killed by signal: Terminated. ",
    )
    assert list(found) == ["KB-49", "KB-06"]
    assert found["KB-06"].decided == "scheduler"
    assert found["KB-49"].values["reason"] == ("TIME LIMIT",)


def test_noise_comes_last() -> None:
    found = story(
        "AssertionError: can only test a child process", "OSError: [Errno 24] Too many open files: '/data/1.npz'"
    )
    assert list(found) == ["KB-13", "KB-26"]
    assert found["KB-13"].values["path"] == ("/data/1.npz",)


def test_stories_keep_together() -> None:
    found = story(
        "ConnectionResetError: [Errno 104] Connection reset by peer",  # not under a loader's frame: unknown
        "RuntimeError: received 0 items of ancdata",
        KILLED.format(pid=7),
        EXITED.format(pid=7),
        "RuntimeError: Pin memory thread exited unexpectedly",
    )
    assert list(found) == ["KB-12", "KB-17", "KB-01", "KB-02"]


def test_what_a_message_names_itself_decides_its_cause() -> None:
    limit = "slurmstepd: error: *** JOB 4 ON n1 CANCELLED AT 2024-03-01T10:00:25 DUE TO TIME LIMIT ***"
    assert story(limit)["KB-49"].decided == "time_limit"
    assert story(limit.replace("TIME LIMIT", "NODE FAILURE"))["KB-49"].decided == "node_failed"
    assert story(limit.replace(" DUE TO TIME LIMIT", ""))["KB-49"].decided == "cancelled"
    told = story("Main process received SIGTERM, exiting")["KB-56"]
    assert not told.decided
    assert "terminal_closed" not in {cause.name for cause in told.open_causes}


def test_a_launcher_s_word_comes_behind_every_other() -> None:
    found = story(
        "W0301 10:00:25.3 6 torch/distributed/elastic/api.py:897] Sending process 5 closing signal SIGTERM",
        "OSError: [Errno 24] Too many open files: '/data/1.npz'",
    )
    assert list(found) == ["KB-13", "KB-57"]
