"""A machine that is too small or set up wrongly; the data set itself is healthy, or only too large for it."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

CASES = {
    "quota_of_one_core": {"target": "tensors", "finds": "cpu_quota", "limits": {"cores": 1}},
    "quota_of_half_a_core": {"target": "tensors", "finds": "cpu_quota", "limits": {"cores": 0.5}, "seconds": 240},
    "memory_limit_600_mib": {
        "target": "tensors",
        "finds": "memory_limit",
        "also": ["out_of_memory"],
        "limits": {"memory_bytes": 629145600},
    },
    "memory_limit_450_mib": {
        "target": "tensors",
        "finds": "memory_limit",
        "also": ["out_of_memory"],
        "limits": {"memory_bytes": 471859200},
    },
    "shm_64_mib": {"target": "tensors", "finds": "small_shm", "limits": {"shm_bytes": 67108864}},
    "shm_64_mib_large_batches": {
        "target": "large_batches",
        "finds": "shm_full",
        "also": ["small_shm"],
        "limits": {"shm_bytes": 67108864},
    },
    "shm_16_mib_large_samples": {
        "target": "large_samples",
        "finds": "shm_full",
        "also": ["small_shm"],
        "limits": {"shm_bytes": 16777216},
    },
    "open_files_200": {"target": "tensors", "finds": "fd_limit", "limits": {"open_files": 200}},
    "open_files_64": {"target": "tensors", "finds": "fd_limit", "limits": {"open_files": 64}},
    "addresses_3_gib": {
        "target": "tensors",
        "finds": "memory_limit",
        "also": ["out_of_memory", "worker_dies"],
        "limits": {"address_bytes": 3221225472},
    },
    "addresses_700_mib": {
        "target": "tensors",
        "finds": "memory_limit",
        "also": ["import_fails", "out_of_memory", "worker_dies"],
        "limits": {"address_bytes": 734003200},
    },
    "tasks_40": {
        "target": "tensors",
        "finds": "process_limit",
        "also": ["worker_dies", "worker_hangs"],
        "limits": {"tasks": 40},
    },
    "tasks_60": {
        "target": "tensors",
        "finds": "process_limit",
        "also": ["worker_dies", "worker_hangs"],
        "limits": {"tasks": 60},
    },
    "processes_70_of_a_user": {
        "target": "tensors",
        "finds": "process_limit",
        "also": ["worker_dies", "worker_hangs"],
        "limits": {"user_processes": 70},
    },
    "sixty_four_threads": {
        "target": "tensors",
        "finds": "thread_oversubscription",
        "environ": {"OMP_NUM_THREADS": "64"},
    },
    "eight_ranks": {"target": "tensors", "finds": "thread_oversubscription", "environ": {"LOCAL_WORLD_SIZE": "8"}},
    "workers_on_one_core": {"target": "tensors", "finds": "known_bug", "environ": {"OMP_PROC_BIND": "close"}},
    "slurm_16_of_2": {
        "target": "tensors",
        "finds": "slurm_mismatch",
        "environ": {"SLURM_JOB_ID": "1", "SLURM_CPUS_PER_TASK": "16"},
    },
    "slurm_2_of_1": {
        "target": "tensors",
        "finds": "slurm_mismatch",
        "environ": {"SLURM_JOB_ID": "1", "SLURM_CPUS_PER_TASK": "2"},
        "cpus": [0],
    },
    "affinity_is_no_trouble": {"target": "tensors", "finds": "", "cpus": [0]},
    "quota_that_is_known": {
        "target": "tensors",
        "finds": "",
        "limits": {"cores": 1},
        "environ": {"OMP_NUM_THREADS": "1"},
    },
    "limits_with_room": {
        "target": "tensors",
        "finds": "",
        "limits": {"memory_bytes": 6442450944, "shm_bytes": 2147483648, "open_files": 4096},
    },
}


def tensors() -> DataLoader[object]:
    return DataLoader(TensorDataset(torch.rand(256, 16)), batch_size=8, num_workers=2)


class Large(Dataset[torch.Tensor]):
    """Samples of 1 MiB."""

    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((1 << 18,), float(index))


def large_batches() -> DataLoader[torch.Tensor]:
    return DataLoader(Large(), batch_size=64, num_workers=2)


def large_samples() -> DataLoader[torch.Tensor]:
    return DataLoader(Large(), batch_size=8, num_workers=2)
