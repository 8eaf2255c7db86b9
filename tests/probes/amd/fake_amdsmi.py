"""The compiled AMD SMI in a test's hands: its state file, and its place under the real binding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.probes.trees import replace_text

Value = str | int | float

MI300X: dict[str, Value] = {
    "*.current": 133,
    "*.cap": 750_000_000,
    "*.energy": 1_370_283_310_000,
    "*.energy_rate_w": 133,
    "*.resolution": 15.259,
    "*.vram_total": 206_141_652_992,
    "*.vram_used": 4_325_376,
    "*.gfx": 0,
    "*.hotspot": 38,
    "*.edge": 33,
    "*.clock": 132,
    "*.ppt": 0,
    "*.thrm": 0,
    "1.current": 717,
    "1.energy_rate_w": 717,
    "1.vram_used": 180_000_000_000,
    "1.gfx": 99,
    "1.hotspot": 84,
    "1.clock": 2100,
    "1.ppt": 1,
    "1.hbm": 1,
}
"""Two MI300X: one idle, one at work."""

MI250: dict[str, Value] = {
    "*.name": "AMD Instinct MI250",
    "*.device_id": 0x740C,
    "*.cap": 560_000_000,
    "*.vram_total": 68_702_699_520,
    "*.vram_used": 11_665_408,
    "*.gfx": 0,
    "*.edge": 40,
    "0.average": 102,
    "0.energy": 5_000_000_000,
    "0.energy_rate_w": 102,
    "0.gfx": 50,
    "1.energy": 0,
    "2.average": 94,
    "2.energy": 6_000_000_000,
    "2.energy_rate_w": 94,
    "3.average": 0,
    "3.energy": 0,
}
"""Two boards of two dies: odd dies say N/A, or 0."""

GPU_0 = "GPU-00000000a0b0c000"
GPU_1 = "GPU-00000000a0b0c001"
GPU_2 = "GPU-00000000a0b0c002"
GPU_3 = "GPU-00000000a0b0c003"


@dataclass(slots=True)
class FakeAmdsmi:
    """State of the fake, written at each change. `rocm` is a ROCm folder with the fake library in it."""

    rocm: Path
    state: Path
    values: dict[str, Value] = field(default_factory=dict)

    def show(self, devices: int, values: Mapping[str, Value]) -> None:
        """Start over with these devices and values."""
        self.values = {"devices": devices, **values}
        self._write()

    def change(self, **values: Value | None) -> None:
        """Set keys, `__` standing for a dot and a leading `b` for the board: `b0__power__ret=2`; None removes."""
        for name, value in values.items():
            key = name.replace("__", ".")
            key = "*" + key[3:] if key.startswith("all.") else (key[1:] if key[1:2].isdigit() else key)
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value
        self._write()

    def env(self) -> dict[str, str]:
        """For a child process that is to load the fake."""
        return {"ROCM_PATH": str(self.rocm), "FAKE_AMDSMI_STATE": str(self.state)}

    def _write(self) -> None:
        replace_text(self.state, "".join(f"{key} {value}\n" for key, value in self.values.items()))
