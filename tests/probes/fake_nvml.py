"""The compiled NVML in a test's hands: its state file, and its place under the real binding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.probes.trees import replace_text

H100: dict[str, str | int] = {
    "*.power_mw": 70120,
    "*.average_mw": 70300,
    "*.limit_mw": 700000,
    "*.memory_total": 85520809984,
    "*.memory_used": 4325376,
    "*.memory_reserved": 629145600,
    "*.temperature": 31,
    "*.utilisation": 0,
    "*.clock": 345,
    "*.throttle": "0x1",
    "*.arch": 9,
    "*.energy_mj": 5000000,
    "*.energy_rate_mw": 70120,
    "0.power_mw": 655840,
    "0.energy_mj": 982134567,
    "0.energy_rate_mw": 655840,
    "0.memory_used": 64265125888,
    "0.temperature": 63,
    "0.utilisation": 97,
    "0.clock": 1755,
    "0.throttle": "0x4",
}
"""Two H100: one at work, one idle."""

GPU_0 = "GPU-00000000-aaaa-4bbb-8ccc-000000000001"
GPU_1 = "GPU-00000000-aaaa-4bbb-8ccc-000000000002"


@dataclass(slots=True)
class FakeNvml:
    """State of the fake, written at each change."""

    library: Path
    state: Path
    values: dict[str, str | int] = field(default_factory=dict)

    def show(self, boards: int, values: Mapping[str, str | int]) -> None:
        """Start over with these boards and values."""
        self.values = {"devices": boards, **values}
        self._write()

    def change(self, **values: str | int | None) -> None:
        """Set keys, `__` standing for a dot and a leading `b` for the board: `b0__power__ret=3`, `all__...`; None removes."""
        for name, value in values.items():
            key = name.replace("__", ".")
            key = "*" + key[3:] if key.startswith("all.") else key.removeprefix("b")
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value
        self._write()

    def env(self) -> dict[str, str]:
        """For a child process that is to load the fake."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), "FAKE_NVML_STATE": str(self.state)}

    def _write(self) -> None:
        replace_text(self.state, "".join(f"{key} {value}\n" for key, value in self.values.items()))
