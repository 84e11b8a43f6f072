"""GPUs are read through nvidia-ml-py; without it, or without a driver, the facts say so."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from headrace.signals.system import GpuReader


class FakeError(Exception):
    """NVML's own error."""


def fake_nvml(**changes: Any) -> types.ModuleType:
    """A driver with one GPU, as pynvml 12 and 13 answer; a test machine has none."""
    nvml: Any = types.ModuleType("pynvml")
    nvml.NVMLError = FakeError
    nvml.NVML_PCIE_UTIL_TX_BYTES, nvml.NVML_PCIE_UTIL_RX_BYTES = 0, 1
    nvml.NVML_CLOCK_SM, nvml.NVML_TEMPERATURE_GPU = 1, 0
    nvml.nvmlInit = nvml.nvmlShutdown = lambda: None
    nvml.nvmlDeviceGetCount = lambda: 1
    nvml.nvmlDeviceGetHandleByIndex = lambda number: number
    nvml.nvmlDeviceGetName = lambda handle: b"NVIDIA H200"
    nvml.nvmlSystemGetDriverVersion = lambda: b"570.86.15"
    nvml.nvmlDeviceGetPciInfo = lambda handle: types.SimpleNamespace(busId=b"00000000:3B:00.0")
    nvml.nvmlDeviceGetUtilizationRates = lambda handle: types.SimpleNamespace(gpu=87, memory=40)
    nvml.nvmlDeviceGetMemoryInfo = lambda handle: types.SimpleNamespace(used=10, total=100)
    nvml.nvmlDeviceGetPowerUsage = lambda handle: 512_300
    nvml.nvmlDeviceGetPcieThroughput = lambda handle, counter: 1000 if counter else 20
    nvml.nvmlDeviceGetClockInfo = lambda handle, clock: 1830
    nvml.nvmlDeviceGetMaxClockInfo = lambda handle, clock: 1980
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: 4
    nvml.nvmlDeviceGetTemperature = lambda handle, sensor: 61
    for name, value in changes.items():
        setattr(nvml, name, value)
    return nvml  # type: ignore[no-any-return]


def unsupported(*arguments: object) -> None:
    raise FakeError("Not Supported")


def check(reader: GpuReader) -> None:
    """The contract that the real driver and the fake keep."""
    assert reader.names
    assert reader.note == ""
    assert reader.driver
    assert len(reader.addresses) == len(reader.names)
    samples = reader.sample()
    assert samples is not None
    assert [one.number for one in samples] == list(range(len(reader.names)))
    for one in samples:
        assert one.utilisation is None or 0 <= one.utilisation <= 1
        assert one.used_bytes is not None
        assert one.total_bytes is not None
        assert 0 < one.used_bytes < one.total_bytes
        assert one.sm_mhz is None or one.most_sm_mhz is None or one.sm_mhz <= one.most_sm_mhz
    reader.close()
    assert reader.sample() is None
    reader.close()


def test_a_fake_driver_keeps_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    reader = GpuReader()
    (sample,) = reader.sample() or ()
    assert reader.names == ("NVIDIA H200",)
    assert (reader.driver, reader.addresses) == ("570.86.15", ("0000:3b:00.0",))
    assert (sample.utilisation, sample.power_w, sample.throttle_reasons) == (0.87, 512.3, 4)
    assert (sample.pcie_rx_bytes_per_s, sample.pcie_tx_bytes_per_s) == (1_000_000, 20_000)
    check(reader)


@pytest.mark.leaves_behind  # the driver keeps its descriptors for as long as the process lives
@pytest.mark.gpu
def test_the_real_driver_keeps_the_contract() -> None:
    pytest.importorskip("pynvml")
    check(GpuReader())


def test_what_a_driver_does_not_support_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("UtilizationRates", "PowerUsage", "PcieThroughput", "CurrentClocksThrottleReasons", "MaxClockInfo")
    changes = {f"nvmlDeviceGet{name}": unsupported for name in names}
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(**changes))
    (sample,) = GpuReader().sample() or ()
    assert (sample.utilisation, sample.power_w, sample.pcie_rx_bytes_per_s, sample.throttle_reasons) == (None,) * 4
    assert sample.used_bytes == 10


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    reader = GpuReader()
    assert (reader.names, reader.sample()) == (None, None)
    assert "headrace[gpu]" in reader.note
    reader.close()


def test_without_a_driver_its_own_words_are_the_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise FakeError("Driver Not Loaded")

    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(nvmlInit=fail))
    reader = GpuReader()
    assert (reader.names, reader.note) == (None, "NVML: Driver Not Loaded")
