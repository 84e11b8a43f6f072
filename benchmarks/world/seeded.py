"""Runs a script that sets no seed of its own with one: `python seeded.py train.py --its options`."""

import os
import random
import runpy
import sys

import numpy as np
import torch

if __name__ == "__main__":
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
