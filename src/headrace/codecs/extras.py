"""Libraries that are loaded when a codec first needs them."""

from __future__ import annotations

import functools
import multiprocessing
from typing import Any

from headrace.errors import NotSupported

_INSTALL = "pip install 'headrace[codecs]'"


@functools.cache
def load_simplejpeg() -> Any:
    try:
        import simplejpeg
    except ImportError:
        raise NotSupported("JPEG decoding needs the simplejpeg package", next_step=_INSTALL) from None
    return simplejpeg


@functools.cache
def load_cv2(need: str) -> Any:
    """Return OpenCV, for what `need` says ("resizing pictures")."""
    try:
        import cv2
    except ImportError:
        raise NotSupported(f"{need} needs OpenCV (opencv-python-headless)", next_step=_INSTALL) from None
    if multiprocessing.parent_process() is not None:
        # a worker is one of many: threads inside each would fight over the same cores, and hang after a fork
        cv2.setNumThreads(1)
    return cv2
