"""Text that stands around messages: lines of healthy trainings, prefixes, colours, and how to put them together."""

from hypothesis import strategies as st

# Lines of trainings that are well, of many frameworks, some with words that messages have too.
HEALTHY = (
    "2025-11-15 19:26:06,847 INFO: [DATA LOAD] Recent 50 batches: avg=449.1ms, min=0.4ms, max=22409.4ms, std=3137.2ms",
    "2025-11-15 19:26:27,537 WARNING: [SLOW BATCH #2950] 20.69s - prefetch_buffer_exhausted (after 31 fast batches)",
    "Epoch 2:  65%|██████▍   | 2949/4570 [34:14<04:19,  6.25it/s, tb(ms)=160]",
    "2024/03/01 10:00:01 - mmengine - INFO - Epoch(train) [1][  50/7330]  lr: 1.0000e-03  time: 0.35  data_time: 0.01",
    "{'loss': 3.5534, 'grad_norm': 1.41421353, 'learning_rate': 2.0454545454545457e-06, 'epoch': 0.01}",
    "      1/100      2.5G      1.234     2.345     1.111        16       640: 100%|██████████| 8/8 [00:03<00:00]",
    "step 1200 | loss 0.4312 | error 0.013 | 12 workers | memory 10.2 GiB | shared memory 3.1 GiB of 64 GiB",
    "GPU available: True (cuda), used: True",
    "Saving checkpoint to /data/runs/7/epoch_3.pt (340 MB) took 1.82 s",
    "INFO: killed 0 stale processes; opened 12 files; no error",
    "num_workers=8 prefetch_factor=2 pin_memory=True persistent_workers=True timeout=0",
    "[rank1]: NCCL INFO NVLS comm 0x7f1928e6e060 headRank 3 nHeads 4 buffSize 4194304",
    "slurmstepd: info: Setting TmpFS quota",
    "wandb: Run data is saved locally in ./wandb/run-20240301_100001-abc123",
    "训练第 3 轮：损失 0.4312，数据 2.1 毫秒，步时间 160.3 毫秒，worker 32 个",
    "val mIoU 0.7312 mAcc 0.8123 time 12.3 s",
    "MemAvailable: 231203 MB, /dev/shm 12 % used, 1024 of 65536 open files",
    "/opt/conda/lib/python3.10/site-packages/torch/nn/modules/conv.py:456: UserWarning: Plan failed",
    "",
)

# What resembles a message and is none, or is another program's.
ALIKE = (
    "the DataLoader worker processes exited cleanly",
    "ConnectionResetError: [Errno 104] Connection reset by peer",  # of a web client: no frame of a loader before it
    "requests.exceptions.ConnectionError: ('aborted.', ConnectionResetError(104, 'Connection reset by peer'))",
    "EOFError",
    "BrokenPipeError: [Errno 32] Broken pipe",
    "OSError: [Errno 12] Cannot allocate memory",  # not at a fork
    "OSError: [Errno 28] No space left on device: '/data/checkpoints/last.pt'",
    "ValueError: cannot reshape array of size 12 into shape (5,3)",  # the user's own reshape
    "IndexError: list index out of range",
    "FileExistsError: [Errno 17] File exists: '/data/out'",
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.csv'",
    "ValueError: not enough values to unpack (expected 3, got 2)",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 16x2)",
    "subprocess.TimeoutExpired: Command 'x' timed out after 60 seconds",
    "the job was killed by the user",
    "process 1234 Killed by admin request",
    "TypeError: unsupported operand type(s) for +: 'NoneType' and 'int'",
    "RuntimeError: CUDA error: device-side assert triggered",
    "KeyError: 'numel'",
    "signal: Killed",
    "worker (pid 12) started",
)


def prefixes() -> st.SearchStrategy[str]:
    """Return what loggers, launchers and schedulers put before a line."""
    return st.sampled_from(
        [
            "",
            "[rank3]: ",
            "2: ",
            "[1,0]<stderr>:",
            "2025-11-15 19:26:06,847 ERROR: ",
            "[2024-03-01 10:00:01,123][__main__][ERROR] - ",
            "Mar 01 10:00:01 gpu07 kernel: ",
            "[default0]:",
            "训练日志：",
            "(RayTrainWorker pid=12, ip=10.0.0.1) ",
            "│ ",
        ]
    )


def surroundings() -> st.SearchStrategy[list[str]]:
    """Return lines of a healthy training, and of none at all."""
    text = st.text(st.characters(blacklist_categories=["Cs", "Cc"], max_codepoint=0x9FFF), max_size=60)
    return st.lists(st.one_of(st.sampled_from(HEALTHY), text), max_size=12)
