"""Apple silicon: `zeus-apple-silicon` and `ioreg`, then `macmon`, then `powermetrics` where sudo asks for no password.

One chip is two devices: the GPU, and the module with CPU and neural engine. Their energies are modelled, so they never stand in
one column with measured ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial

from bench.probes import presence
from bench.probes.apple import binding, tools
from bench.probes.apple.chip import FACTS, Chip, facts
from bench.probes.card_probe import CardProbe, Opened, Way
from bench.probes.command import output
from bench.probes.tool import Told, opened
from bench.probes.values import attempt

_IOREG = ("-r", "-d", "1", "-w0", "-c", "IOAccelerator")
_MACMON = ("pipe", "-s", "1", "-i", "500")
_POWERMETRICS = ("--samplers", "cpu_power,gpu_power,thermal", "-n", "1", "-i", "500", "-f", "plist")

Parse = Callable[[str, Chip], list[Told]]


class AppleProbe(CardProbe):
    """The GPU, and the module around it."""

    name = "apple"
    label = "Apple silicon"
    fix = "pip install 'tokjoule[apple]', or brew install macmon, or let sudo run powermetrics without a password"
    seen_fix = fix

    def ways(self) -> Sequence[Way]:
        if self.sign() is None:
            return ()
        chip = self._chip()
        return (lambda: Opened(cards=binding.cards(chip)), partial(self._by, "ioreg", ("ioreg", *_IOREG), tools.ioreg, chip))

    def tool(self) -> Way | None:
        chip = self._chip()
        if self._has("macmon"):
            return partial(self._by, "macmon", ("macmon", *_MACMON), tools.macmon, chip)
        if self._has("sudo") and self._has("powermetrics"):
            return partial(self._by, "powermetrics", ("sudo", "-n", "powermetrics", *_POWERMETRICS), tools.powermetrics, chip)
        return None

    def sign(self) -> str | None:
        return presence.apple_silicon(self.env)

    def _chip(self) -> Chip:
        return facts(attempt(partial(output, FACTS, env=self.env))[0] or "")

    def _has(self, name: str) -> bool:
        return shutil.which(name, path=self.env.get("PATH")) is not None

    def _by(self, name: str, argv: Sequence[str], parse: Parse, chip: Chip) -> Opened:
        return opened(name, lambda: parse(output(argv, env=self.env), chip), self.clock)
