"""Draw the picture of the README: who works on which batch when, and how long the training loop waits.

The picture is a model, not a measurement: four workers, samples that take about the same time, and a training step
that is faster than the workers together. Run `python docs/img/draw_waits.py` to draw it anew, in both languages.
"""

from dataclasses import dataclass
from html import escape
from pathlib import Path

NUM_WORKERS = 4
BATCH_SAMPLES = 8
NUM_BATCHES = 12
STEP = 1.1  # in the time of one sample

WIDTH = 1000
LEFT = 148
UNIT = (WIDTH - LEFT - 30) / (NUM_BATCHES * BATCH_SAMPLES / NUM_WORKERS + NUM_WORKERS * STEP + 0.2)
LANE = 17
BATCH_COLORS = ("#2a78b8", "#5aa5d6", "#8cc3e3", "#3f8f8a")
STEP_COLOR, WAIT_COLOR, INK, QUIET, PAPER = "#26323d", "#f2a03d", "#26323d", "#5f6b76", "#ffffff"


@dataclass(frozen=True)
class Words:
    """What is written in the picture, in one language."""

    title: str
    torch: str
    torch_note: str
    headrace: str
    headrace_note: str
    worker: str
    loop: str
    wait: str
    step: str
    batch: str
    time: str
    path_title: str
    path: tuple[tuple[str, str], ...]
    back: str
    model: str


ENGLISH = Words(
    title="Four workers, the same samples, the same training step",
    torch="torch: a worker makes a whole batch",
    torch_note="three batches without a wait, then one long wait, for ever",
    headrace="headrace: all workers fill the next batch together",
    headrace_note="the first batch comes four times sooner, and the waits are even",
    worker="worker {}",
    loop="training loop",
    wait="wait",
    step="step",
    batch="work on batches 1, 2, 3, 4, … (one box: one sample)",
    time="time",
    path_title="The path of a sample",
    path=(
        ("your Dataset", "dataset[i], unchanged"),
        ("a free worker", "takes the next sample"),
        ("a row of a slot", "written once, in place"),
        ("the batch", "tensors over the slot"),
        ("your training step", "for batch in loader:"),
    ),
    back="the slot is used again when the last tensor over it is gone: no fresh memory, hardly a page fault",
    model="Drawn from a model of the two ways to give out work. Measured figures: benchmarks/",
)

CHINESE = Words(
    title="同样的四个 worker，同样的样本，同样的训练步",
    torch="torch：一个 worker 独自做完整个 batch",
    torch_note="三个 batch 不用等，接着一次长等待，如此反复",
    headrace="headrace：所有 worker 一起填满下一个 batch",
    headrace_note="首个 batch 早到四倍，之后每次等待都一样短",
    worker="worker {}",
    loop="训练循环",
    wait="等待",
    step="训练步",
    batch="第 1、2、3、4… 个 batch 的工作（一格为一个样本）",
    time="时间",
    path_title="一个样本走过的路",
    path=(
        ("你的 Dataset", "dataset[i]，一行不改"),
        ("空闲的 worker", "领取下一个样本"),
        ("槽位中的一行", "就地写入，只写一次"),
        ("batch", "张量直接指向槽位"),
        ("你的训练步", "for batch in loader:"),
    ),
    back="最后一个张量释放后，槽位立即复用：不再申请新内存，几乎没有缺页",
    model="本图由两种派活方式的模型画出，并非测量结果；实测数据见 benchmarks/",
)


@dataclass(frozen=True)
class Piece:
    """One sample on one worker."""

    worker: int
    batch: int
    start: float
    end: float


def sample_time(index: int) -> float:
    """Return about 1: samples differ a little."""
    return 0.9 + 0.2 * ((index * 7919) % 101) / 100


def by_batch() -> list[Piece]:
    """Give a whole batch to each worker in turn, as torch does."""
    free = [0.0] * NUM_WORKERS
    pieces = []
    for index in range(NUM_BATCHES * BATCH_SAMPLES):
        batch = index // BATCH_SAMPLES
        worker = batch % NUM_WORKERS
        pieces.append(Piece(worker, batch, free[worker], free[worker] + sample_time(index)))
        free[worker] = pieces[-1].end
    return pieces


def by_sample() -> list[Piece]:
    """Give the next sample to whichever worker is free first, as headrace does."""
    free = [0.0] * NUM_WORKERS
    pieces = []
    for index in range(NUM_BATCHES * BATCH_SAMPLES):
        worker = free.index(min(free))
        pieces.append(Piece(worker, index // BATCH_SAMPLES, free[worker], free[worker] + sample_time(index)))
        free[worker] = pieces[-1].end
    return pieces


def loop_of(pieces: list[Piece]) -> list[tuple[float, float, float]]:
    """Return when the loop asked for each batch, got it, and had finished its step."""
    steps, now = [], 0.0
    for batch in range(NUM_BATCHES):
        got = max(now, *(piece.end for piece in pieces if piece.batch == batch))
        steps.append((now, got, got + STEP))
        now = got + STEP
    return steps


class Drawing:
    """Shapes in the order in which they are drawn."""

    def __init__(self, width: int, height: int) -> None:
        self.size = width, height
        self.shapes: list[str] = []

    def box(
        self, x: float, y: float, width: float, height: float, fill: str, *, r: float = 1.5, line: str = ""
    ) -> None:
        stroke = f' stroke="{line}" stroke-width="1.4"' if line else ""
        self.shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{r}" fill="{fill}"{stroke}/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 13,
        fill: str = INK,
        anchor: str = "start",
        bold: bool = False,
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        self.shapes.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"{weight}>'
            f"{escape(text)}</text>"
        )

    def path(self, d: str, *, arrow: bool = True) -> None:
        end = ' marker-end="url(#arrow)"' if arrow else ""
        self.shapes.append(f'<path d="{d}" fill="none" stroke="{QUIET}" stroke-width="1.4"{end}/>')

    def svg(self, title: str) -> str:
        width, height = self.size
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
                f'height="{height}" role="img" aria-label="{escape(title)}" '
                """font-family="-apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Noto Sans CJK SC', """
                """'PingFang SC', 'Microsoft YaHei', sans-serif">""",
                f"<title>{escape(title)}</title>",
                '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
                f'orient="auto-start-reverse"><path d="M0,0 L8,4 L0,8 z" fill="{QUIET}"/></marker></defs>',
                f'<rect width="{width}" height="{height}" rx="10" fill="{PAPER}"/>',
                *self.shapes,
                "</svg>\n",
            ]
        )


def draw_schedule(drawing: Drawing, top: float, title: str, note: str, pieces: list[Piece], words: Words) -> float:
    """Draw the lanes of the workers and of the loop, and return where they end."""
    drawing.text(24, top, title, size=15, bold=True)
    drawing.text(WIDTH - 30, top, note, size=13, fill=QUIET, anchor="end")
    y = top + 14
    for worker in range(NUM_WORKERS):
        drawing.text(LEFT - 12, y + LANE - 5, words.worker.format(worker), size=12, fill=QUIET, anchor="end")
        for piece in pieces:
            if piece.worker == worker:
                is_last = all(
                    piece.end >= each.end for each in pieces if (each.worker, each.batch) == (worker, piece.batch)
                )
                width = (piece.end - piece.start) * UNIT - (4.5 if is_last else 1.2)
                fill = BATCH_COLORS[piece.batch % len(BATCH_COLORS)]
                drawing.box(LEFT + piece.start * UNIT, y, width, LANE - 3, fill)
        y += LANE
    y += 7
    drawing.text(LEFT - 12, y + 17, words.loop, size=13, anchor="end", bold=True)
    for asked, got, done in loop_of(pieces):
        if got > asked:
            drawing.box(LEFT + asked * UNIT, y, (got - asked) * UNIT - 0.8, 25, WAIT_COLOR)
        drawing.box(LEFT + got * UNIT, y, (done - got) * UNIT - 0.8, 25, STEP_COLOR)
    return y + 25


def draw_legend(drawing: Drawing, y: float, words: Words) -> None:
    """Say what the colours mean."""
    x: float = LEFT
    for fill, label in ((WAIT_COLOR, words.wait), (STEP_COLOR, words.step)):
        drawing.box(x, y - 10, 16, 12, fill)
        drawing.text(x + 22, y, label, size=12, fill=QUIET)
        x += 84
    for fill in BATCH_COLORS:
        drawing.box(x, y - 10, 11, 12, fill)
        x += 13
    drawing.text(x + 8, y, words.batch, size=12, fill=QUIET)
    drawing.text(WIDTH - 62, y, words.time, size=12, fill=QUIET, anchor="end")
    drawing.path(f"M{WIDTH - 56},{y - 4} H{WIDTH - 30}")


def draw_path(drawing: Drawing, top: float, words: Words) -> None:
    """Draw the boxes that a sample goes through, and the way back of its slot."""
    drawing.text(24, top, words.path_title, size=15, bold=True)
    num = len(words.path)
    gap, y, height = 30, top + 14, 50
    width = (WIDTH - 48 - gap * (num - 1)) / num
    lefts = [24 + i * (width + gap) for i in range(num)]
    for i, (left, (name, what)) in enumerate(zip(lefts, words.path, strict=True)):
        ours = 0 < i < num - 1
        drawing.box(
            left, y, width, height, "#eaf3fa" if ours else "#f3f4f5", r=7, line="#2a78b8" if ours else "#b7bec5"
        )
        drawing.text(left + width / 2, y + 21, name, size=13.5, anchor="middle", bold=True)
        drawing.text(left + width / 2, y + 39, what, size=12, fill=QUIET, anchor="middle")
        if i:
            drawing.path(f"M{left - gap + 3},{y + height / 2} H{left - 3}")
    start, end, bottom = lefts[-1] + width / 2, lefts[2] + width / 2, y + height
    drawing.path(f"M{start:.1f},{bottom + 2} V{bottom + 20} H{end:.1f} V{bottom + 3}")
    drawing.text(WIDTH - 24, bottom + 38, words.back, size=12, fill=QUIET, anchor="end")
    drawing.text(24, bottom + 62, words.model, size=11, fill=QUIET)


def draw(words: Words) -> str:
    """Return the whole picture as SVG."""
    drawing = Drawing(WIDTH, 536)
    drawing.text(24, 34, words.title, size=18, bold=True)
    bottom = draw_schedule(drawing, 66, words.torch, words.torch_note, by_batch(), words)
    bottom = draw_schedule(drawing, bottom + 38, words.headrace, words.headrace_note, by_sample(), words)
    draw_legend(drawing, bottom + 24, words)
    draw_path(drawing, bottom + 66, words)
    return drawing.svg(words.title)


if __name__ == "__main__":
    here = Path(__file__).parent
    for words, name in ((ENGLISH, "waits.svg"), (CHINESE, "waits.zh-CN.svg")):
        (here / name).write_text(draw(words), encoding="utf-8")
