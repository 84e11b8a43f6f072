"""Hugging Face's Trainer: evaluation and a checkpoint every ten steps."""

import time

import torch
from transformers import Trainer, TrainingArguments


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        if not self.training:
            time.sleep(0.02)
        logits = self.net(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def main() -> None:
    torch.set_num_threads(1)
    data = [{"x": torch.randn(8), "labels": torch.tensor(index % 4)} for index in range(80)]
    arguments = TrainingArguments(
        "saved",
        num_train_epochs=2,
        eval_strategy="steps",
        eval_steps=10,
        save_strategy="steps",
        save_steps=10,
        logging_steps=5,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        dataloader_num_workers=2,
        report_to=[],
        use_cpu=True,
    )
    Trainer(Model(), arguments, train_dataset=data, eval_dataset=data[:40]).train()


if __name__ == "__main__":
    main()
