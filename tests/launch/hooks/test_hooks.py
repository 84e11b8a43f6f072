"""What the hooks hang into: the same list on both sides, and tensors that know whether they were copied."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from headrace.launch import tape
from headrace.launch.hooks import device, step
from headrace.launch.hooks.installing import METHODS, WATCHED
from headrace.model import EventKind

_SITE = Path(device.__file__).parents[1] / "site" / "sitecustomize.py"


def test_what_is_looked_for_at_start_is_what_there_are_hooks_for() -> None:
    tree = ast.parse(_SITE.read_text(encoding="utf-8"))
    (watched,) = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "_WATCHED"
        and isinstance(node.value, ast.Call)
    ]
    assert eval(ast.unparse(watched.args[0])) == WATCHED
    assert METHODS.keys() <= WATCHED


def test_a_collection_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may come in the middle of an import, where another import would break the interpreter's locks."""
    own = tape.Tape()
    monkeypatch.setattr(step, "tape", own)
    monkeypatch.setattr(step, "_WORTH_COLLECTION_NS", 0)
    monkeypatch.setattr(own, "_open", lambda: pytest.fail("a lane was opened"))
    step._note_collection("start", {})
    step._note_collection("stop", {"collected": 1, "generation": 2})
    written: list[tuple[int, ...]] = []
    own._lane = object()  # type: ignore[assignment]
    own.write = lambda *event: written.append(event)
    step._note_collection("start", {})
    step._note_collection("stop", {"collected": 1, "generation": 2})
    assert [(event[0], event[3:]) for event in written] == [(int(EventKind.GC), (1, 3))]


class Written:
    """What was written, instead of a lane."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[EventKind, int]] = []
        monkeypatch.setattr(device.tape, "write", self._write)

    def _write(self, kind: int, _start: int, _duration: int, value: int = 0, _arg: int = 0) -> None:
        self.events.append((EventKind(kind), value))

    def take(self) -> list[tuple[EventKind, int]]:
        events, self.events = self.events, []
        return events


@pytest.fixture
def timed() -> type[torch.Tensor]:
    class Timed(torch.Tensor):
        pass

    device.time_tensors(Timed)
    return Timed


def test_copies_are_known_by_where_a_tensor_was_and_is(
    timed: type[torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written(monkeypatch)
    tensor: Any = torch.ones(3, 4).as_subclass(timed)
    on_device = torch.empty(3, 4, device="meta").as_subclass(timed)  # a device on every machine, that holds nothing
    copy = [(EventKind.H2D, 48)]
    assert tensor.to("meta").device.type == "meta"
    assert written.take() == copy
    tensor.to(torch.device("meta"))
    assert written.take() == copy
    tensor.to(device="meta", dtype=torch.float64)
    assert written.take() == [(EventKind.H2D, 96)]
    tensor.to(on_device)
    assert written.take() == copy
    on_device.copy_(torch.ones(3, 4))
    assert written.take() == copy
    tensor.to(torch.float64)
    tensor.cpu()
    tensor.copy_(torch.zeros(3, 4))
    tensor.to("cpu")
    on_device.to("meta")
    assert (tensor.sum().item(), float(tensor[0, 0]), bool(tensor.sum() == 0), tensor.tolist()[0][0]) == (0, 0, True, 0)
    assert written.take() == []


def test_a_copy_that_fails_leaves_the_next_one_timed(
    timed: type[torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written(monkeypatch)
    on_device = torch.empty(3, device="meta").as_subclass(timed)
    for ask in (on_device.cpu, on_device.sum().item, on_device.tolist):
        with pytest.raises((NotImplementedError, RuntimeError)):
            ask()
    written.take()
    torch.ones(3).as_subclass(timed).to("meta")
    assert written.take() == [(EventKind.H2D, 12)]


COMPILED = """
import sys, torch
if "hooks" in sys.argv:
    from headrace.launch.hooks import device, step
    device.time_tensors(torch.Tensor)
    step.time_steps(torch)
from torch._dynamo.utils import counters
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
if "hooks" in sys.argv:
    step.look_for_models()
print(model(torch.ones(2, 4)).shape)  # the class is timed from here on
if "hooks" in sys.argv:
    assert "__call__" in vars(torch.nn.Sequential)

def step(batch):
    out = model(batch.to(torch.float32)).to(torch.float64).cpu()
    return out.square().mean()

traced = torch.fx.symbolic_trace(model)
print([str(node.target) for node in traced.graph.nodes])
compiled = torch.compile(step, backend="eager")
assert "__call__" not in vars(torch.nn.Sequential)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = compiled(torch.ones(2, 4, dtype=torch.float64))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
whole = torch.compile(model, backend="eager", fullgraph=True)
print(float(loss), float(whole(torch.ones(2, 4)).sum()))
print(dict(counters["stats"]), dict(counters["graph_break"]))
"""


@pytest.mark.slow
def test_a_compiler_sees_none_of_the_hooks(tmp_path: Path) -> None:
    script = tmp_path / "compiled.py"
    script.write_text(COMPILED, encoding="utf-8")
    said = [
        subprocess.run([sys.executable, str(script), *words], capture_output=True, text=True, timeout=110)
        for words in ((), ("hooks",))
    ]
    assert said[0].returncode == said[1].returncode == 0, said[0].stderr + said[1].stderr
    assert said[0].stdout == said[1].stdout
    assert "'unique_graphs': 2" in said[0].stdout
    assert said[0].stdout.rstrip().endswith("{}")  # no break of a graph
