"""Scripts with defects, marked `#! rule` on the line where each must be found, and healthy ones like them."""

PLANTED = {
    # What users wrote about: a clamp, and a prefetch that is hard-coded into the keywords of the loader.
    "clamped_and_hard_coded": """
        import argparse
        from torch.utils.data import DataLoader

        def main():
            parser = argparse.ArgumentParser()
            parser.add_argument("--num-workers", type=int, default=8)
            parser.add_argument("--prefetch-factor", type=int, default=4)
            args = parser.parse_args()
            num_workers_for_hdd = min(4, max(2, args.num_workers)) if args.num_workers > 0 else 0  #! flag-clamped
            train_loader_kwargs = dict(batch_size=4, num_workers=num_workers_for_hdd, persistent_workers=True)
            train_loader_kwargs["prefetch_factor"] = 2  #! flag-ignored
            return DataLoader(make_dataset(), **train_loader_kwargs)
        """,
    "clamped_by_a_branch": """
        def build(args):
            if args.num_workers > 4:
                args.num_workers = 4  #! flag-clamped
        """,
    "clamped_configuration": """
        def build(cfg):
            wanted = cfg.data.num_workers
            return Loader(num_workers=min(wanted, 8))  #! flag-clamped
        """,
    "overwritten": """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("-j", "--workers", default=8, type=int)
        opt = parser.parse_args()
        opt.workers = 2  #! flag-overridden
        """,
    "ignored_for_a_constant": """
        import argparse
        import torch
        parser = argparse.ArgumentParser()
        parser.add_argument("--num-workers", default=8, type=int)
        args = parser.parse_args()
        loader = torch.utils.data.DataLoader(data, num_workers=2)  #! flag-ignored
        """,
    "ignored_for_the_default": """
        import argparse
        from torch.utils import data
        parser = argparse.ArgumentParser()
        parser.add_argument("--workers", default=8, type=int)
        args = parser.parse_args()
        loader = data.DataLoader(dataset, batch_size=4)  #! flag-ignored
        """,
    "prefetch_without_workers": """
        from torch.utils.data import DataLoader
        loader = DataLoader(data, num_workers=0, prefetch_factor=2)  #! workers-needed
        other = DataLoader(data, batch_size=2, persistent_workers=True)  #! workers-needed
        """,
    "prefetch_with_a_default_of_no_workers": """
        import argparse
        from torch.utils.data import DataLoader
        parser = argparse.ArgumentParser()
        parser.add_argument("--workers", default=0, type=int)
        args = parser.parse_args()
        loader = DataLoader(data, num_workers=args.workers, prefetch_factor=4)  #! workers-needed
        """,
    "data_class": """
        from dataclasses import dataclass
        from torch.utils.data import DataLoader

        @dataclass
        class Config:
            workers: int = 0

        def build(cfg: Config):
            return DataLoader(data, num_workers=cfg.workers, persistent_workers=True)  #! workers-needed
        """,
    "mm_style": """
        train_dataloader = dict(  #! workers-needed
            batch_size=2, num_workers=0, persistent_workers=True, dataset=dict(type="CocoDataset"))
        data = dict(samples_per_gpu=2, workers_per_gpu=0, persistent_workers=True)  #! workers-needed
        settings = {"num_workers": 0, "prefetch_factor": 4}  #! workers-needed
        """,
    "pinned_but_waited_for": """
        import torch
        from torch.utils.data import DataLoader

        def train(model, loader, device):
            for epoch in range(10):
                for step, (image, label) in enumerate(loader):
                    image, label = image.to(device), label.to(device)  #! pin-without-non-blocking

        def main():
            use_cuda = torch.cuda.is_available()
            kwargs = {"batch_size": 4}
            if use_cuda:
                kwargs.update({"pin_memory": True, "num_workers": 2, "persistent_workers": True})
            train(model, DataLoader(data, **kwargs), "cuda")
        """,
    "not_pinned": """
        from torch.utils.data import DataLoader
        from tqdm import tqdm
        loader = DataLoader(data, batch_size=4)
        for batch in tqdm(loader):
            batch = {key: value.cuda(non_blocking=True) for key, value in batch.items()}  #! non-blocking-without-pin
        """,
    "restarted_in_every_epoch": """
        from torch.utils.data import DataLoader

        class Trainer:
            def __init__(self):
                self.loader = DataLoader(data, num_workers=4, shuffle=True)  #! no-persistent-workers

            def run_epoch(self):
                for batch in self.loader:
                    pass

            def fit(self):
                for epoch in range(100):
                    self.run_epoch()
        """,
    "restarted_by_lightning": """
        import lightning as L
        from torch.utils.data import DataLoader

        class Data(L.LightningDataModule):
            def train_dataloader(self):
                return DataLoader(self.train_set, num_workers=8, shuffle=True)  #! no-persistent-workers
        """,
    "restarted_pair": """
        from torch.utils.data import DataLoader

        def get_loaders(n):
            train = DataLoader(a, num_workers=n)  #! no-persistent-workers
            val = DataLoader(b, num_workers=n)
            return train, val

        train_loader, val_loader = get_loaders(4)
        while True:
            for batch in train_loader:
                pass
        """,
    "no_sampler_of_the_rank": """
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader
        model = DDP(model)
        loader = DataLoader(data, batch_size=8, shuffle=True)  #! no-rank-sampler
        """,
    "stream_without_shares": """
        from torch.utils.data import IterableDataset

        class Lines(IterableDataset):
            def __init__(self, paths):
                self.paths = paths

            def __iter__(self):  #! no-worker-split
                for path in self.paths:
                    with open(path) as file:
                        yield from file
        """,
    "stream_without_ranks": """
        import torch
        torch.distributed.init_process_group("nccl")

        class Shards(torch.utils.data.IterableDataset):
            def __iter__(self):  #! no-rank-split
                info = torch.utils.data.get_worker_info()
                for shard in self.shards[info.id :: info.num_workers]:
                    yield from read(shard)
        """,
    "handles": """
        import h5py
        import zipfile
        from torch.utils.data import Dataset

        class Volumes(Dataset):
            def __init__(self, path):
                self.file = h5py.File(path, "r")  #! handle-before-fork
                self.archive = zipfile.ZipFile(path)  #! handle-before-fork

            def __len__(self):
                return len(self.file)

            def __getitem__(self, index):
                return self.file["x"][index], self.archive.read(str(index))
        """,
    "large_index": """
        from torch.utils.data import Dataset
        N = 5 * 10**6

        class Numbers(Dataset):
            def __init__(self):
                self.ids = list(range(20_000_000))  #! large-python-index
                self.paths = [f"{i}.jpg" for i in range(N)]  #! large-python-index

            def __getitem__(self, index):
                return self.paths[index]
        """,
    "swallowed": """
        from torch.utils.data import Dataset, IterableDataset

        class Images(Dataset):
            def __getitem__(self, index):
                try:
                    return load(index)
                except:  #! swallowed-sample
                    return None

        class Others(Dataset):
            def __getitem__(self, index):
                try:
                    return load(index)
                except Exception as error:  #! swallowed-sample
                    print(error)
                    return self.__getitem__((index + 1) % len(self))

        class Stream(IterableDataset):
            def __iter__(self):
                for worker_path in self.paths:
                    try:
                        yield load(worker_path)
                    except OSError:  #! swallowed-sample
                        continue
        """,
    "threads_of_opencv": """
        import cv2
        from torch.utils.data import Dataset

        class Images(Dataset):
            def __getitem__(self, index):
                return self.shrink(cv2.imread(self.paths[index]))

            def shrink(self, image):
                return cv2.resize(image, (64, 64))  #! cv2-threads
        """,
    "unchecked": """
        import numpy as np
        from PIL import ImageFile
        from torch.utils.data import DataLoader
        ImageFile.LOAD_TRUNCATED_IMAGES = True  #! truncated-images
        labels = np.load("labels.npy", allow_pickle=True)  #! allow-pickle
        loader = DataLoader(labels)
        """,
    "steps": """
        import torch
        for epoch in range(10):
            for batch in batches:
                loss = model(batch.to("cuda"))
                loss.backward()
                total += loss.item()  #! item-each-step
                torch.save(model.state_dict(), "last.pt")  #! save-in-step-loop
                if step % 100 == 0:
                    torch.save(model.state_dict(), "step.pt")  #! save-in-step-loop
        """,
}

HEALTHY = {
    "flags_as_they_are": """
        import argparse, os
        from torch.utils.data import DataLoader
        parser = argparse.ArgumentParser()
        parser.add_argument("--num-workers", type=int, default=8)
        parser.add_argument("--prefetch-factor", type=int, default=4)
        parser.add_argument("--batch-size", type=int, default=4)
        args = parser.parse_args()
        if args.debug:
            args.num_workers = 0
        args.batch_size = args.batch_size // 8
        workers = min(os.cpu_count(), args.num_workers)
        shown = min(args.batch_size, 8)
        loader = DataLoader(data, batch_size=args.batch_size, num_workers=max(1, workers),
                            prefetch_factor=args.prefetch_factor if workers else None, persistent_workers=workers > 0)
        """,
    "flags_read_elsewhere": """
        import argparse
        from torch.utils.data import DataLoader
        from data import make_loader
        parser = argparse.ArgumentParser()
        parser.add_argument("--workers", type=int, default=8)
        parser.add_argument("--pin-mem", action="store_true")
        args = parser.parse_args()
        train = make_loader(**vars(args))
        def build(pin_mem, workers): ...
        val = DataLoader(data, num_workers=0)
        """,
    "settings_under_conditions": """
        from torch.utils.data import DataLoader
        def build(n, extra):
            kwargs = {"num_workers": n}
            if n > 0:
                kwargs["prefetch_factor"] = 4
                kwargs["persistent_workers"] = True
            return DataLoader(a, **kwargs), DataLoader(b, num_workers=0, prefetch_factor=None), DataLoader(c, **extra)
        settings = dict(num_workers=0, persistent_workers=False, prefetch_factor=None)
        others = {"num_workers": 0, **overrides, "persistent_workers": True}
        """,
    "copies": """
        from torch.utils.data import DataLoader
        pinned = DataLoader(a, pin_memory=True)
        plain = DataLoader(b)
        prepared = DataLoader(c, pin_memory=True)
        prepared = accelerator.prepare(prepared)
        for x, y in pinned:
            x, y = x.to(device, non_blocking=True), y.cuda(non_blocking=True)
            z = x.to(torch.float32)
        for x in plain:
            x = x.to(device)
        for x in prepared:
            x = x.to(device)
        for x in unknown:
            x = x.to(device, non_blocking=True)
        """,
    "workers_that_stay_or_work_once": """
        from torch.utils.data import DataLoader
        kept = DataLoader(a, num_workers=4, persistent_workers=True)
        once = DataLoader(b, num_workers=4)
        val_loader = DataLoader(c, num_workers=4)
        none = DataLoader(d)
        for batch in once:
            pass
        for epoch in range(10):
            for batch in kept: pass
            for batch in val_loader: pass
            for batch in none: pass
            anew = DataLoader(e, num_workers=4)
            for batch in anew: pass

        def extract(slide):
            loader = DataLoader(slide, num_workers=4)
            for batch in loader: pass

        for slide in slides:
            extract(slide)
        """,
    "ranks": """
        from torch.nn.parallel import DistributedDataParallel
        from torch.utils.data import DataLoader, DistributedSampler
        model = DistributedDataParallel(model)
        train = DataLoader(a, sampler=DistributedSampler(a))
        debug = DataLoader(a, shuffle=True)
        """,
    "streams": """
        import random
        from torch.utils.data import IterableDataset, get_worker_info
        class Split(IterableDataset):
            def __iter__(self):
                info = get_worker_info()
                for path in self.paths[info.id :: info.num_workers]:
                    yield load(path)
        class Drawn(IterableDataset):
            def __iter__(self):
                while True:
                    yield random.choice(self.paths)
        """,
    "data_sets": """
        import cv2, h5py, json, sys
        from torch.utils.data import Dataset
        class Lazy(Dataset):
            def __init__(self, path):
                self.path, self.file = path, None
                with open(path) as file:
                    self.index = json.load(file)
                self.first = [i for i in range(1000)]
                self.log = open("log.txt", "w")
                self.log.close()
                self.mean = self.prepare()
            def prepare(self):
                return cv2.resize(load(0), (4, 4))
            def __len__(self):
                return len(self.index)
            def __getitem__(self, index):
                if self.file is None:
                    self.file = h5py.File(self.path)
                try:
                    return self.file[index]
                except OSError as error:
                    self.num_bad += 1
                    return None
            def label(self, index):
                try:
                    return self.index[index]
                except KeyError:
                    return None
        """,
    "data_set_that_is_pickled_with_care": """
        import h5py
        from torch.utils.data import Dataset, DataLoader
        class Careful(Dataset):
            def __init__(self, path):
                self.file = h5py.File(path)
            def __getstate__(self):
                return {"path": self.path}
            def __getitem__(self, index):
                return self.file[index]
        """,
    "data_set_without_workers": """
        import h5py
        from torch.utils.data import Dataset, DataLoader
        class Here(Dataset):
            def __init__(self, path):
                self.file = h5py.File(path)
            def __getitem__(self, index):
                return self.file[index]
        loader = DataLoader(Here("a.h5"), num_workers=0)
        """,
    "plot_of_results": """
        import numpy as np
        figures = np.load("figures.npy", allow_pickle=True).item()
        """,
    "steps": """
        import torch
        for epoch in range(10):
            for step, batch in enumerate(batches):
                loss = model(batch.cuda())
                loss.backward()
                if step % 100 == 0:
                    print(loss.item())
                if step % 5000 == 0:
                    torch.save(model.state_dict(), "step.pt")
            torch.save(model.state_dict(), "epoch.pt")
        with torch.no_grad():
            for batch in val_batches:
                total += model(batch).loss.item()
        """,
}
