"""A compiled vendor library in a test's hands: its state file, and the environment that leads a probe to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.probes.trees import replace_text

Value = str | int | float


@dataclass(slots=True)
class FakeLibrary:
    """State of a fake that includes `state.h`, written at each change. `variable` is its STATE_VARIABLE; `env_of` leads to it."""

    path: Path
    state: Path
    variable: str
    env_of: Mapping[str, str] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)

    def show(self, devices: int, values: Mapping[str, Value]) -> None:
        """Start over with these devices and values; keys are `*.power` or `1.power`."""
        self.values = {"devices": devices, **values}
        self._write()

    def set(self, key: str, value: Value | None) -> None:
        """One more key: `0.power`, `0.power.ret`, `*.power.hang_s`; None removes it."""
        self.values.pop(key, None)
        if value is not None:
            self.values[key] = value
        self._write()

    def env(self) -> dict[str, str]:
        """For a process that is to load the fake."""
        return {self.variable: str(self.state), **self.env_of}

    def _write(self) -> None:
        replace_text(self.state, "".join(f"{key} {value}\n" for key, value in self.values.items()))
