"""Real faults, met by the real packages: the entry of each recognises what they truly print."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from headrace.knowledge import MessageFound, MessageScanner

SCRIPT = Path(__file__).with_name("provoke.py")

# Fault to the entry that must come first, and, behind a colon, the true cause that must be settled.
QUICK = {
    "worker_killed": "KB-01",
    "worker_segfault": "KB-04",
    "worker_bus_error": "KB-03",
    "worker_floating_point": "KB-04",
    "worker_terminated": "KB-06",
    "worker_aborted": "KB-07",
    "worker_exited": "KB-05",
    "mapped_file_truncated": "KB-03",
    "file_size_limit": "KB-15",
    "address_space_limit": "KB-55",
    "array_too_large": "KB-55",
    "too_many_files": "KB-13",
    "too_many_files_in_the_worker": "KB-14",
    "too_many_files_opened": "KB-13",
    "descriptor_lost_on_its_way": "KB-12",
    "names_taken_in_shm": "KB-43",
    "timed_out": "KB-19",
    "unpicklable_sample": "KB-23",
    "pickled_lambda": "KB-23",
    "pickled_lock": "KB-23",
    "iterator_in_a_child": "KB-26",
    "prefetch_without_workers": "KB-27",
    "too_many_workers": "KB-28",
    "uneven_shapes": "KB-29",
    "uneven_shapes_largest_first": "KB-29",
    "uneven_shapes_in_process": "KB-29",
    "sample_is_none": "KB-30",
    "tensor_then_none": "KB-30",
    "first_sample_is_none": "KB-30",
    "every_sample_filtered": "KB-30",
    "npz_flipped_bit": "KB-31",
    "npz_handle_shared": "KB-31",
    "npz_truncated": "KB-32",
    "npy_empty": "KB-33",
    "tar_truncated": "KB-34",
    "tar_bad_first_header": "KB-34",
    "tar_empty": "KB-34",
    "npy_is_a_web_page": "KB-35",
    "npy_of_objects": "KB-35",
    "npy_truncated": "KB-36",
    "npy_truncated_stream": "KB-36",
    "npy_truncated_mapped": "KB-36",
    "npz_member_truncated": "KB-36",
    "shm_manager_missing": "KB-46",
    "connection_reset": "KB-02",
}
AS_ROOT = {
    "shm_full": {"KB-03", "KB-09", "KB-10"},  # by the release of torch
    "shm_full_file_system": {"KB-03", "KB-09", "KB-10"},
    "shm_filled_by_others": {"KB-08", "KB-09", "KB-10"},
    "shm_full_before": {"KB-08"},
    "fork_refused": {"KB-25"},
}
SLOW = {"too_many_maps": "KB-11", "no_main_guard": "KB-24", "rank_killed": "KB-50", "pickled_file": "KB-23"}
WITH_PACKAGE = {
    "jpeg_truncated_opencv": ("KB-38", "cv2"),
    "jpeg_stray_bytes_opencv": ("KB-38", "cv2"),
    "jpeg_truncated_pillow": ("KB-37", "PIL"),
    "webdataset_duplicate": ("KB-39", "webdataset"),
    "webdataset_partner_missing": ("KB-40", "webdataset"),
    "webdataset_few_shards": ("KB-41", "webdataset"),
    "datasets_few_shards": ("KB-42", "datasets"),
}
ON_A_GPU = {
    "cuda_in_forked_worker": "KB-21",
    "pinned_memory_refused": "KB-18",
    "gpu_memory_used_up": "KB-52",
}


def provoke(folder: Path, *faults: str) -> Path:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), *faults], capture_output=True, text=True, timeout=110, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return folder


def found_in(log: Path) -> tuple[MessageFound, ...]:
    scanner = MessageScanner()
    scanner.scan_chunk(log.read_bytes())
    return scanner.found()


@pytest.fixture(scope="module")
def quick_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return provoke(tmp_path_factory.mktemp("quick"), *QUICK, "tar_that_stops_silently")


def test_the_entries_recognise_what_is_truly_printed(quick_logs: Path) -> None:
    for fault, id_ in QUICK.items():
        log = quick_logs / f"{fault}.log"
        assert [one.entry.id for one in found_in(log)][:1] == [id_], (fault, log.read_text("utf-8", "replace"))


def test_what_says_nothing_is_not_made_up(quick_logs: Path) -> None:
    log = quick_logs / "tar_that_stops_silently.log"
    assert "members read: 2 of 4" in log.read_text()
    assert found_in(log) == ()


def test_a_dead_worker_is_one_story(quick_logs: Path) -> None:
    """Torch prints up to three messages for one death; only the one that says most has no other before it."""
    found = found_in(quick_logs / "worker_killed.log")
    assert [one.entry.id for one in found if not one.explained_by] == ["KB-01"]
    assert found[0].values["pid"][0].isdigit()


def test_a_lost_batch_explains_the_wait_for_it(quick_logs: Path) -> None:
    found = {one.entry.id: one for one in found_in(quick_logs / "unpicklable_sample.log")}
    assert found["KB-20"].decided == "lost_batch"
    assert found["KB-19"].decided == "lost_batch"


@pytest.mark.root
def test_a_full_shm_is_recognised_whatever_torch_says(tmp_path: Path) -> None:
    provoke(tmp_path, *AS_ROOT)
    for fault, ids in AS_ROOT.items():
        found = found_in(tmp_path / f"{fault}.log")
        assert found[0].entry.id in ids, (tmp_path / f"{fault}.log").read_text("utf-8", "replace")


@pytest.mark.slow
@pytest.mark.parametrize("fault", SLOW)
def test_slow_faults_are_recognised(fault: str, tmp_path: Path) -> None:
    found = found_in(provoke(tmp_path, fault) / f"{fault}.log")
    assert found[0].entry.id == SLOW[fault], (tmp_path / f"{fault}.log").read_text("utf-8", "replace")


def packages_of(fault: str) -> set[str]:
    return {WITH_PACKAGE[fault][1], *(["cv2"] if "jpeg" in fault else [])}


@pytest.fixture(scope="module")
def logs_of_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    there = [fault for fault in WITH_PACKAGE if all(map(find_spec, packages_of(fault)))]
    return provoke(tmp_path_factory.mktemp("packages"), *there)


@pytest.mark.parametrize("fault", WITH_PACKAGE)
def test_other_packages_are_recognised(fault: str, logs_of_packages: Path) -> None:
    log = logs_of_packages / f"{fault}.log"
    if not log.exists():
        pytest.skip(f"needs {packages_of(fault)}")
    assert found_in(log)[0].entry.id == WITH_PACKAGE[fault][0], log.read_text("utf-8", "replace")


@pytest.mark.gpu
@pytest.mark.parametrize("fault", ON_A_GPU)
def test_faults_of_a_gpu_are_recognised(fault: str, tmp_path: Path) -> None:
    found = found_in(provoke(tmp_path, fault) / f"{fault}.log")
    assert found[0].entry.id == ON_A_GPU[fault]
