"""A plain loop that writes to a slow handler of `logging`, loguru, TensorBoard, wandb (offline) and a tqdm bar."""

import logging
import time

import torch
import wandb
from loguru import logger
from torch.utils.data import DataLoader
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm


class Slow(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        time.sleep(0.05)


def main() -> None:
    torch.set_num_threads(1)
    log = logging.getLogger("training")
    log.addHandler(Slow())
    logger.remove()
    logger.add(lambda _: time.sleep(0.03))
    writer, run = SummaryWriter("board"), wandb.init(mode="offline", project="headrace", dir=".")
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step, batch in enumerate(tqdm(DataLoader([torch.randn(8) for _ in range(160)], batch_size=4))):
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        writer.add_scalar("loss", loss.item(), step)
        run.log({"loss": loss.item()})
        log.error("step %d", step)
        logger.error("step {}", step)
    writer.close()
    run.finish()


if __name__ == "__main__":
    main()
