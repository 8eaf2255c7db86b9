"""What an Apple chip is called, and its two devices: the GPU, and the module with CPU, GPU and neural engine.

All of them are one chip with one memory. What it draws comes from a model: scope `module` is CPU, GPU and neural engine together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.probes import values

GPU, MODULE = "apple:gpu", "apple:module"
UNIFIED = {"memory": "unified with the host: what the GPU holds of it"}
FACTS = ("sysctl", "machdep.cpu.brand_string", "hw.memsize", "kern.osproductversion")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """`name` as in `Apple M4`, `os` as in `macOS 26.1`; None where the system does not tell."""

    name: str | None = None
    memory_b: int | None = None
    os: str | None = None

    def identity(self, uid: str) -> dict[str, Any]:
        """What a `Card` or a tool's `Told` of the GPU or the module says of itself."""
        return {
            "index": (GPU, MODULE).index(uid),
            "unique_id": uid,
            "name": self.name and (f"{self.name} GPU" if uid == GPU else self.name),
            "driver": self.os,
            "scope": "accelerator" if uid == GPU else "module",
            "quality": "modelled",
            "board": "apple",
        }


def facts(text: str) -> Chip:
    """What `sysctl` prints: `KEY: VALUE` lines."""
    told: Mapping[str, str] = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())
    }
    memory, version = told.get("hw.memsize", ""), values.named(told.get("kern.osproductversion"))
    return Chip(
        name=values.named(told.get("machdep.cpu.brand_string")),
        memory_b=int(memory) if memory.isdecimal() and int(memory) else None,
        os=f"macOS {version}" if version else None,
    )
