"""What the driver says of NVIDIA GPUs, through nvidia-ml-py where it is installed."""

import contextlib
from collections.abc import Callable
from typing import Any

from .samples import GpuSample

_NO_PACKAGE = "nvidia-ml-py is not installed (pip install 'headrace[gpu]')"


class GpuReader:
    """Holds the driver's library open. Without GPUs `names` is None, and `note` says why."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] | None = None
        self.note = ""
        self._nvml: Any = None
        self._handles: list[Any] = []
        try:
            import pynvml
        except ImportError:
            self.note = _NO_PACKAGE
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self.note = f"NVML: {error}"
            return
        self._nvml = pynvml
        count = self._ask(pynvml.nvmlDeviceGetCount) or 0
        self._handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        told = [self._ask(pynvml.nvmlDeviceGetName, handle) for handle in self._handles]
        self.names = tuple(one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one) for one in told)

    def sample(self) -> tuple[GpuSample, ...] | None:
        """All GPUs now; None where there is no driver to ask."""
        if self._nvml is None:
            return None
        return tuple(self._read(number, handle) for number, handle in enumerate(self._handles))

    def close(self) -> None:
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlShutdown()

    def _read(self, number: int, handle: Any) -> GpuSample:
        nvml = self._nvml
        rates = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        power = self._ask(nvml.nvmlDeviceGetPowerUsage, handle)
        received = self._ask(nvml.nvmlDeviceGetPcieThroughput, handle, nvml.NVML_PCIE_UTIL_RX_BYTES)
        sent = self._ask(nvml.nvmlDeviceGetPcieThroughput, handle, nvml.NVML_PCIE_UTIL_TX_BYTES)
        return GpuSample(
            number=number,
            utilisation=None if rates is None else rates.gpu / 100,
            memory_utilisation=None if rates is None else rates.memory / 100,
            used_bytes=None if memory is None else int(memory.used),
            total_bytes=None if memory is None else int(memory.total),
            sm_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            most_sm_mhz=self._ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
            throttle_reasons=self._ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle),
            power_w=None if power is None else power / 1000,
            temperature_c=self._ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            pcie_rx_bytes_per_s=None if received is None else received * 1000,  # NVML counts in KB/s
            pcie_tx_bytes_per_s=None if sent is None else sent * 1000,
        )

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        """A driver answers what it knows: a question it does not support is None, not a failure."""
        try:
            return question(*arguments)
        except self._nvml.NVMLError:
            return None
