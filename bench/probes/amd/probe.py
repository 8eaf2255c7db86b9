"""AMD boards: `amdsmi`, else `pyrsmi`; then the kernel's files for what they lack; then `amd-smi` or `rocm-smi`.

The library numbers all GPUs in PCI order and ignores `ROCR_VISIBLE_DEVICES`: join on the unique id.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.probes import presence
from bench.probes.amd import library, rsmi, sysfs, tool
from bench.probes.card_probe import CardProbe, Opened, Way
from bench.probes.cards import Board, first_of
from bench.probes.values import Unavailable

_PAIRED = ("MI250",)
"""Two dies on one board, one power sensor: the primary die's reading is both."""
_PAIRED_IDS = ("0x7408", "0x740c")
_HELD_FIX = "load amdgpu (sudo modprobe amdgpu); a card given to a virtual machine is measured there"


class AmdProbe(CardProbe):
    """One device a GPU die or partition; power once a board. On an APU power is that of CPU and GPU: scope `module`."""

    name = "amd"
    label = "AMD GPU"
    fix = (
        "install ROCm's amd-smi-lib (its binding is read from /opt/rocm/share/amd_smi; ROCM_PATH says where ROCm is), "
        "or pip install 'tokjoule[amd]' of the same major version"
    )
    seen_fix = "in a container start it with --device=/dev/kfd --device=/dev/dri and the groups video and render"
    trusts_counter = False

    def ways(self) -> Sequence[Way]:
        """None where all cards are Hygon's: `pyrsmi` would take them for AMD's."""
        if presence.pci_devices(self.roots, "hygon") and not presence.pci_devices(self.roots, "amd"):
            return ()
        return (self._by_library, self._by_files)

    def tool(self) -> Way | None:
        found = tool.find(self.env, self.clock)
        return None if found is None else lambda: Opened(cards=found.cards(), close=found.close)

    def groups(self, boards: Sequence[Board]) -> list[list[Board]]:
        return [*_partitions(boards), *_pairs(boards)]

    def sign(self) -> str | None:
        """Hygon's driver makes the same node: its cards are no sign of AMD's."""
        sign = super().sign()
        return None if sign and sign.startswith("device node") and presence.card(self.roots, "hygon") else sign

    def _by_library(self) -> Opened:
        try:
            api = library.load(self.env)
        except library.CannotLoad as error:
            why = str(error)
        else:
            return Opened(cards=library.cards(api, self.clock), close=api.close)
        try:
            return Opened(cards=rsmi.cards(rsmi.load()))
        except library.CannotLoad as error:
            raise Unavailable(f"{why}; {error}", lasting=True) from error

    def _by_files(self) -> Opened:
        unserved = sysfs.unserved(self.roots)
        problems = tuple(self.problem(pci, f"the card is held by {driver}", _HELD_FIX) for pci, driver in unserved)
        return Opened(cards=sysfs.cards(self.roots), problems=problems)


def _partitions(made: Sequence[Board]) -> list[list[Board]]:
    """Devices that share bus and slot are partitions of one accelerator (DPX, CPX): functions of one PCI device."""
    slots: dict[str, list[Board]] = {}
    for board in made:
        if board.info.pci is not None:
            slots.setdefault(board.info.pci.rpartition(".")[0], []).append(board)
    return [group for group in slots.values() if len(group) > 1]


def _pairs(made: Sequence[Board]) -> list[list[Board]]:
    """Neighbouring dies of MI250 boards."""
    dies = [
        board
        for board in made
        if any(part in board.info.name for part in _PAIRED) or first_of(board.cards, "device_id") in _PAIRED_IDS
    ]
    return [list(pair) for pair in zip(dies[::2], dies[1::2], strict=False)]
