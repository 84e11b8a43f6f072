"""What a type checker sees of the public names; mypy reads this file, nobody runs it."""

from typing import Any, assert_type

import numpy as np
import numpy.typing as npt
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import TensorDataset

import headrace
from headrace import DataLoader, HeadraceError, LoaderStats, SampleFailure, codecs
from headrace.storage.shards import DamageKind


def loader_is_torchs(data: TensorDataset) -> None:
    loader = DataLoader(data, batch_size=4, num_workers="auto", memory="1GiB", backend="process")
    assert_type(loader.num_workers, int)
    as_torch: TorchDataLoader[object] = loader
    assert_type(loader.stats(), LoaderStats)
    assert_type(len(as_torch), int)


def errors_have_three_parts(error: HeadraceError) -> None:
    assert_type(error.what, str)
    assert_type(error.next_step, str)
    assert_type(error.evidence, dict[str, object])


def decide(failure: SampleFailure) -> object:
    assert_type(failure.tries, int)
    assert_type(failure.file, str | None)
    return headrace.RETRY if failure.tries < 3 else headrace.SKIP


def codecs_make_arrays(data: bytes) -> None:
    assert_type(codecs.npz(data, "feat"), npt.NDArray[Any])
    assert_type(codecs.npz(data), dict[str, npt.NDArray[Any]])
    assert_type(codecs.jpeg(data), npt.NDArray[np.uint8])
    assert_type(headrace.decode("jpg")({"jpg": data}), dict[str, Any])


def shards_say_where_samples_lie(shards: headrace.Shards) -> None:
    assert_type(len(shards), int)
    assert_type(shards.extents(0)[0].offset, int)
    assert_type(shards.place(0).key, str)
    assert_type(shards.damage[0].kind, DamageKind)
    assert_type(shards.unpaired[0].name, str)
    with headrace.ShardWriter("x-%06d.tar", max_bytes="1 GiB") as writer:
        assert_type(writer.paths, list[str])


def stages_have_figures(stats: LoaderStats) -> None:
    with headrace.stage("volume process") as done:
        assert_type(done.nbytes, int)
    assert_type(stats.stages["volume process"].median_s, float)
    assert_type(str(stats.stages), str)


assert_type(headrace.__version__, str)
