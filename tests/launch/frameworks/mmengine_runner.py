"""mmengine's Runner: validation and a checkpoint after each epoch, the best one kept, its own log and TensorBoard's."""

import time

import torch
from mmengine.evaluator import BaseMetric, Evaluator
from mmengine.model import BaseModel
from mmengine.runner import Runner


class Model(BaseModel):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(8, 1)

    def forward(self, inputs: torch.Tensor, mode: str = "tensor") -> dict[str, torch.Tensor] | torch.Tensor:
        found = self.net(inputs)
        if mode == "loss":
            return {"loss": found.square().mean()}
        time.sleep(0.02)
        return found


class Evaluations(BaseMetric):  # type: ignore[misc]
    """Better every time, so that each is kept as the best."""

    num_evaluations = 0

    def process(self, _: object, outputs: list[torch.Tensor]) -> None:
        self.results += [float(one) for one in outputs]

    def compute_metrics(self, _: list[float]) -> dict[str, int]:
        self.num_evaluations += 1
        return {"number": self.num_evaluations}


def loader(length: int, *, shuffle: bool) -> dict[str, object]:
    data = [{"inputs": torch.randn(8)} for _ in range(length)]
    sampler = {"type": "DefaultSampler", "shuffle": shuffle}
    collate = {"type": "default_collate"}
    return {"batch_size": 4, "num_workers": 2, "dataset": data, "sampler": sampler, "collate_fn": collate}


def main() -> None:
    torch.set_num_threads(1)
    Runner(
        model=Model(),
        work_dir="work",
        train_dataloader=loader(80, shuffle=True),
        train_cfg={"by_epoch": True, "max_epochs": 2, "val_interval": 1},
        optim_wrapper={"optimizer": {"type": "SGD", "lr": 1e-3}},
        val_dataloader=loader(40, shuffle=False),
        val_cfg={},
        val_evaluator=Evaluator(Evaluations()),
        default_hooks={
            "logger": {"type": "LoggerHook", "interval": 5},
            "checkpoint": {"type": "CheckpointHook", "interval": 1, "save_best": "number", "rule": "greater"},
        },
        visualizer={
            "type": "Visualizer",
            "vis_backends": [{"type": "LocalVisBackend"}, {"type": "TensorboardVisBackend"}],
        },
        experiment_name="small",
    ).train()


if __name__ == "__main__":
    main()
