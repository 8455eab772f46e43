"""A GPU: whether XGBoost can use one, and arrays that lie on it.

XGBoost that finds no GPU goes on on the CPU, and only warns; so it is asked first, and whatever is missing is one
sentence.  Arrays are CuPy's or PyTorch's, whichever is installed; what computes with them uses the few operations that
those two and numpy have in common, so that numpy can stand in for a GPU.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import sys
from typing import Any

import numpy as np

__all__ = ["DEVICES", "Arrays", "TorchArrays", "arrays_on", "check_cuda", "is_about_memory", "load_xgboost"]

DEVICES = ("cpu", "cuda")
DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
INSTALL = "install it with: pip install 'cstc[gpu]'"
#: XGBoost has one kind of error for all, and PyTorch one of its own; so these are looked for in what they say.
SIGNS_OF_MEMORY = ("out of memory", "memory allocation", "memoryallocation", "bad_alloc", "unable to allocate")


def load_xgboost(why: str) -> Any:
    """XGBoost, or a sentence that says how to get it."""
    try:
        return importlib.import_module("xgboost")
    except ImportError as error:
        raise ImportError(f"{why} needs XGBoost; {INSTALL}") from error


def check_cuda() -> None:
    """Raise what keeps XGBoost from growing trees on a GPU."""
    xgboost = load_xgboost("device='cuda'")
    if not xgboost.build_info().get("USE_CUDA"):
        raise RuntimeError(
            "device='cuda' needs an XGBoost with CUDA, and this one was built without it; take the package xgboost "
            "instead of xgboost-cpu: pip uninstall xgboost-cpu, then pip install 'cstc[gpu]'"
        )
    problem = _driver_problem()
    if problem:
        raise RuntimeError(f"device='cuda' needs an NVIDIA GPU, and {problem}; take device='cpu'")
    try:
        data = xgboost.DMatrix(np.arange(8.0)[:, None], np.arange(8.0))
        booster = xgboost.Booster({"device": "cuda", "tree_method": "hist", "verbosity": 0}, [data])
        booster.update(data, 0)
        device = json.loads(booster.save_config())["learner"]["generic_param"]["device"]
    except xgboost.core.XGBoostError as error:
        if is_about_memory(error):
            raise MemoryError(
                "device='cuda': the GPU has no memory left even for one small tree; other programs hold it (nvidia-smi "
                "shows them); wait for them, or take device='cpu'"
            ) from error
        said = " ".join(str(error).split())[:200]
        raise RuntimeError(
            f"device='cuda': XGBoost {xgboost.__version__} cannot use the GPU of this machine; its driver may be "
            f"too old for that version. It says: {said}"
        ) from error
    if not device.startswith("cuda"):
        raise RuntimeError(f"device='cuda': XGBoost {xgboost.__version__} took {device!r} instead; take device='cpu'")


def is_about_memory(error: Exception) -> bool:
    """Whether an error of XGBoost, CuPy or PyTorch says that there is too little."""
    said = str(error).lower()
    return isinstance(error, MemoryError) or any(sign in said for sign in SIGNS_OF_MEMORY)


def _driver_problem() -> str:
    """What is wrong with the driver, or with what it sees; nothing, if that is an empty text."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return "there is no driver for one on this machine"
    status = driver.cuInit(0)
    if status:
        return f"its driver cannot be started (error {status} of CUDA)"
    count = ctypes.c_int(0)
    status = driver.cuDeviceGetCount(ctypes.byref(count))
    if status or not count.value:
        return "the driver sees none (CUDA_VISIBLE_DEVICES may hide it)"
    return ""


class Arrays:
    """Arrays of numpy, or of CuPy, which is like it but for the way between host and device."""

    def __init__(self, module: Any):
        self._module = module
        self.name: str = module.__name__

    def put(self, values: np.ndarray) -> Any:
        """On the device."""
        return self._module.asarray(values)

    def get(self, values: Any) -> np.ndarray:
        """Back on the host."""
        return values if isinstance(values, np.ndarray) else self._module.asnumpy(values)

    def whole(self, codes: Any) -> Any:
        """Codes as numbers that can look something up."""
        return codes.astype(np.int64)

    def free(self) -> int | None:
        """Bytes that are left on the device; None: it is no device."""
        return None if self._module is np else int(self._module.cuda.runtime.memGetInfo()[0])

    def release(self) -> None:
        """Give back what is kept for later arrays: others need it."""
        if self._module is not np:
            self._module.get_default_memory_pool().free_all_blocks()


class TorchArrays(Arrays):
    """Arrays of PyTorch."""

    def __init__(self, module: Any, device: str):
        super().__init__(module)
        self._device = device

    def put(self, values: np.ndarray) -> Any:
        if values.dtype.kind == "u" and values.itemsize > 1:  # it can do little with these
            values = values.astype(np.int32)
        return self._module.from_numpy(np.ascontiguousarray(values)).to(self._device)

    def get(self, values: Any) -> np.ndarray:
        return values.cpu().numpy()

    def whole(self, codes: Any) -> Any:
        return codes.to(self._module.int64)

    def free(self) -> int | None:
        return None if self._device == "cpu" else int(self._module.cuda.mem_get_info()[0])

    def release(self) -> None:
        if self._device != "cpu":
            self._module.cuda.empty_cache()


def arrays_on(device: str) -> Arrays | None:
    """Arrays on a GPU; None where neither library is installed, or neither of them can use it."""
    for name in ("cupy", "torch") if device == "cuda" else ():
        try:
            module = importlib.import_module(name)
        except Exception:  # not installed, or for another version of CUDA
            continue
        found = Arrays(module) if name == "cupy" else TorchArrays(module, "cuda")
        try:
            found.put(np.zeros(1))
        except Exception as error:
            if not is_about_memory(error):
                continue
        return found  # maybe on a GPU that is full: what is put there will say so
    return None
