"""What `ZE_AFFINITY_MASK` calls a card where `ZE_ENABLE_PCI_ID_DEVICE_ORDER` has the driver number its devices in PCI order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_HIERARCHY = "ZE_FLAT_DEVICE_HIERARCHY"


def numbers(stacks: Sequence[int], env: Mapping[str, str]) -> list[str]:
    """The numbers of each card, from how many stacks each has, in PCI order and with the CPU's own GPU among them.

    Each stack has a number of its own, but where the environment asks for composite devices.
    """
    called = []
    start = 0
    for many in stacks:
        width = 1 if env.get(_HIERARCHY) == "COMPOSITE" else many
        called.append(",".join(str(start + stack) for stack in range(width)))
        start += width
    return called
