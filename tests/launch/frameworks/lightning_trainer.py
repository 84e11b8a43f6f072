"""Lightning: validation every ten steps, a checkpoint after each, two loggers."""

import time

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch.utils.data import DataLoader


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(8, 1)

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        loss = self.net(batch).square().mean()
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: torch.Tensor, _: int) -> None:
        time.sleep(0.02)
        self.log("val", self.net(batch).square().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def main() -> None:
    torch.set_num_threads(1)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=2,
        val_check_interval=10,
        log_every_n_steps=5,
        callbacks=[ModelCheckpoint(dirpath="saved", save_top_k=-1, monitor="val", filename="{epoch}-{step}")],
        logger=[CSVLogger("csv"), TensorBoardLogger("board")],
    )
    data = [torch.randn(8) for _ in range(80)]
    trainer.fit(Model(), DataLoader(data, batch_size=4, num_workers=2), DataLoader(data[:40], batch_size=4))


if __name__ == "__main__":
    main()
