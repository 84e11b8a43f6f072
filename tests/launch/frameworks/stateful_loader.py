"""torchdata's StatefulDataLoader, stopped and resumed: over a data set that is its own iterator, and another."""

import torch
from torch.utils.data import IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader


class Counting(IterableDataset):
    """Its own iterator, with a state."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> "Counting":
        return self

    def __next__(self) -> torch.Tensor:
        self.at += 1
        if self.at > 40:
            raise StopIteration
        return torch.tensor(self.at)

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class Position:
    """An iterator with a state."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> "Position":
        return self

    __next__, state_dict, load_state_dict = Counting.__next__, Counting.state_dict, Counting.load_state_dict


class Plain(IterableDataset):
    def __iter__(self) -> Position:
        return Position()


def main() -> None:
    for make in (Counting, Plain):
        for workers in (0, 2):
            loader = StatefulDataLoader(make(), batch_size=4, num_workers=workers)
            seen = []
            for number, batch in enumerate(loader):
                seen.append(batch.tolist())
                if number == 3:
                    break
            state = loader.state_dict()
            later = StatefulDataLoader(make(), batch_size=4, num_workers=workers)
            later.load_state_dict(state)
            print(make.__name__, workers, seen, [batch.tolist() for batch in later])
            print(state if not workers else sorted(state))


if __name__ == "__main__":
    main()
