"""Data for scripts of other people, generated: random pictures, digits, text, graphs in the files that they expect."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def prepare(folder: Path, case: dict[str, Any]) -> None:
    """Make what a script reads and patch it, as its case says; what is there already stays."""
    for kind, place, settings in case["data"]:
        mark = folder / place / f".made-{kind}"
        if not mark.exists() or mark.read_text() != json.dumps(settings):
            (folder / place).mkdir(parents=True, exist_ok=True)
            globals()[kind](folder / place, **settings)
            mark.write_text(json.dumps(settings))
    for name in case.get("folders", ()):
        (folder / case["in"] / name).mkdir(parents=True, exist_ok=True)
    for name, old, new in case.get("patches", ()):
        text = (folder / name).read_text()
        if new not in text:
            (folder / name).write_text(text.replace(old, new))


def photos(folder: Path, *, each: int = 60, val: int = 10, classes: int = 4, size: Sequence[int] = (640, 480)) -> None:
    """`train/cN/*.jpg` and `val/cN/*.jpg`."""
    for split, count in (("train", each), ("val", val)):
        for number in range(classes):
            (folder / split / f"c{number}").mkdir(parents=True, exist_ok=True)
            for one in range(count):
                _photo(number * 1000 + one, size).save(folder / split / f"c{number}" / f"{one}.jpg", quality=90)


def bsds(folder: Path, *, train: int = 120, test: int = 20, size: Sequence[int] = (1600, 1200)) -> None:
    """`train/N.jpg` and `test/N.jpg`, as in the Berkeley segmentation data set."""
    for split, count in (("train", train), ("test", test)):
        (folder / split).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            _photo(number, size).save(folder / split / f"{number}.jpg", quality=90)


def modelnet(folder: Path, *, train: int = 120, test: int = 24, points: int = 10_000) -> None:
    """ModelNet's clouds as text, ten kinds: `KIND/KIND_0001.txt`, a line a point with its normal."""
    kinds, draw = [f"kind{number}" for number in range(10)], np.random.default_rng(0)
    (folder / "modelnet10_shape_names.txt").write_text("\n".join(kinds))
    for split, count in (("train", train), ("test", test)):
        names = [f"{kinds[number % 10]}_{split}{number:04}" for number in range(count)]
        (folder / f"modelnet10_{split}.txt").write_text("\n".join(names))
        for name in names:
            (folder / name.partition("_")[0]).mkdir(exist_ok=True)
            values = draw.standard_normal((points, 6)).astype(np.float32)
            np.savetxt(folder / name.partition("_")[0] / f"{name}.txt", values, fmt="%.6f", delimiter=",")


def pets(folder: Path, *, count: int = 160, size: Sequence[int] = (500, 375)) -> None:
    """`breed_N.jpg`, all in one folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        _photo(number, size).save(folder / f"breed{number % 4}_{number}.jpg", quality=90)


def masks(folder: Path, *, count: int = 60, size: Sequence[int] = (640, 480)) -> None:
    """`imgs/N.jpg` and `masks/N_mask.gif`, as in the Carvana challenge."""
    for name in ("imgs", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        picture = _photo(number, size)
        picture.save(folder / "imgs" / f"{number}.jpg", quality=90)
        picture.convert("L").point(lambda value: 255 * (value > 128)).convert("1").save(
            folder / "masks" / f"{number}_mask.gif"
        )


def yolo(folder: Path, *, count: int = 64, size: Sequence[int] = (640, 480)) -> None:
    """Pictures, boxes and `data.yaml`, as Ultralytics reads them."""
    for split, number_of in (("train", count), ("val", 16)):
        for name in ("images", "labels"):
            (folder / name / split).mkdir(parents=True, exist_ok=True)
        for number in range(number_of):
            _photo(number, size).save(folder / "images" / split / f"{number}.jpg", quality=90)
            (folder / "labels" / split / f"{number}.txt").write_text("0 0.5 0.5 0.3 0.3\n1 0.3 0.3 0.2 0.2\n")
    (folder / "data.yaml").write_text(
        f"path: {folder.resolve()}\ntrain: images/train\nval: images/val\nnames: {{0: a, 1: b}}\n"
    )


def mnist(folder: Path, *, train: int = 60000, test: int = 10000) -> None:
    """The four files of MNIST under `MNIST/raw`, with digits of noise."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    for name, count in (("train", train), ("t10k", test)):
        labels = draw.integers(0, 10, count, dtype=np.uint8)
        pictures = draw.integers(0, 128, (count, 28, 28), dtype=np.uint8)
        pictures[np.arange(count), labels * 2] = 255
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(np.array([2049, count], ">i4").tobytes() + labels.tobytes())
        head = np.array([2051, count, 28, 28], ">i4").tobytes()
        (raw / f"{name}-images-idx3-ubyte").write_bytes(head + pictures.tobytes())


def cifar(folder: Path, *, each: int = 2000) -> None:
    """`cifar-10-batches-py` with so many pictures in each of its six files."""
    batches = folder / "cifar-10-batches-py"
    batches.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        data = draw.integers(0, 256, (each, 3072), dtype=np.uint8)
        with open(batches / name, "wb") as file:
            pickle.dump({"data": data, "labels": draw.integers(0, 10, each).tolist()}, file)
    with open(batches / "batches.meta", "wb") as file:
        pickle.dump({"label_names": [f"c{number}" for number in range(10)]}, file)


def characters(folder: Path, *, count: int = 500_000) -> None:
    """`train.bin`, `val.bin` and `meta.pkl`, as nanoGPT prepares a text."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    for name, length in (("train", count), ("val", count // 10)):
        draw.integers(0, 65, length, dtype=np.uint16).tofile(folder / f"{name}.bin")
    letters = "".join(chr(33 + number) for number in range(65))
    meta = {"vocab_size": 65, "itos": dict(enumerate(letters)), "stoi": {c: n for n, c in enumerate(letters)}}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))


def words(folder: Path, *, lines: int = 6000) -> None:
    """`train.txt`, `valid.txt` and `test.txt` of random words."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    for name, count in (("train", lines), ("valid", lines // 10), ("test", lines // 10)):
        text = [" ".join(f"w{int(draw.paretovariate(0.5)) % 3000}" for _ in range(20)) for _ in range(count)]
        (folder / f"{name}.txt").write_text("\n".join(text) + "\n")


def sentences(folder: Path, *, count: int = 2000, hidden: int = 128, longest: int = 60) -> None:
    """`train.csv`, `val.csv` and `model/`: a tiny random BERT with its words."""
    (folder / "model").mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    vocabulary = [f"w{number}" for number in range(1000)]
    for name, number_of in (("train", count), ("val", count // 5)):
        texts = [" ".join(draw.choices(vocabulary, k=draw.randint(8, longest))) for _ in range(number_of)]
        rows = [f"{text},{draw.randint(0, 1)}" for text in texts]
        (folder / f"{name}.csv").write_text("\n".join(["sentence,label", *rows]) + "\n")
    (folder / "model" / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *vocabulary]))
    config = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "vocab_size": 1005}
    config |= {"hidden_size": hidden, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 4 * hidden}
    (folder / "model" / "config.json").write_text(json.dumps(config))
    tokenizer = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    (folder / "model" / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    BertForSequenceClassification(BertConfig(**config)).save_pretrained(folder / "model")


def vit(folder: Path, *, hidden: int = 64) -> None:
    """A tiny random vision transformer with the settings of its pictures."""
    import torch
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    torch.manual_seed(0)
    sizes = {"hidden_size": hidden, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 4 * hidden}
    ViTForImageClassification(ViTConfig(patch_size=32, num_labels=4, **sizes)).save_pretrained(folder)
    ViTImageProcessor().save_pretrained(folder)


def waves(folder: Path, *, count: int = 100, length: int = 1000) -> None:
    """`traindata.pt`, the sine waves of pytorch/examples' time_sequence_prediction."""
    import torch

    starts = np.random.default_rng(2).integers(-80, 80, (count, 1))
    torch.save(np.sin((np.arange(length) + starts) / 20).astype("float64"), folder / "traindata.pt")


def graphs(folder: Path, *, count: int = 2000, nodes: int = 30) -> None:
    """A TU data set, `MUTAG/raw/MUTAG_*.txt`."""
    raw = folder / "MUTAG" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    draw, edges = random.Random(0), []
    for graph in range(count):
        for node in range(nodes):
            other = draw.randrange(nodes)
            pair = (graph * nodes + node + 1, graph * nodes + other + 1)
            edges += [pair, pair[::-1]] if pair[0] != pair[1] else []
    (raw / "MUTAG_A.txt").write_text("".join(f"{a}, {b}\n" for a, b in edges))
    (raw / "MUTAG_graph_indicator.txt").write_text("".join(f"{g + 1}\n" for g in range(count) for _ in range(nodes)))
    (raw / "MUTAG_graph_labels.txt").write_text("".join(f"{draw.choice((-1, 1))}\n" for _ in range(count)))
    (raw / "MUTAG_node_labels.txt").write_text("".join(f"{draw.randrange(7)}\n" for _ in range(count * nodes)))


def _photo(seed: int, size: Sequence[int]) -> Image.Image:
    """Smooth shapes with some noise: as heavy to decode as a photograph of that size."""
    draw = np.random.default_rng(seed)
    small = Image.fromarray(draw.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    smooth = np.asarray(small.resize((size[0], size[1]), Image.Resampling.BICUBIC), dtype=np.int16)
    return Image.fromarray(np.clip(smooth + draw.integers(-12, 13, smooth.shape), 0, 255).astype(np.uint8))
