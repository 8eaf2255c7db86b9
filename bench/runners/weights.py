"""Folders of safetensors, and the flags that make an engine run them in a precision: what plain weights can be made into as they
load, and what they must be already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.errors import UsageError
from bench.ports import StartRequest
from bench.precision import FLOATS, GGUF, nearest, same_precision, spelled
from bench.records import LocalModel
from bench.runners.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Menu:
    """The precisions that an engine runs, in the project's words: `plain` are flags for each float format, `made` are flags for
    each format that it makes of plain weights as they load, and `stored` are formats that it runs where the weights are so.
    """

    engine: str
    plain: Mapping[str, tuple[str, ...]]
    made: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stored: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """All of them, each once."""
        return tuple(dict.fromkeys((*self.plain, *self.made, *self.stored)))

    def check(self, precision: str | None) -> None:
        """Refuse what the engine does not run whatever the weights are. Raises: UsageError with what it supports."""
        word = None if precision is None else spelled(precision)
        if word is None or word in self.words:
            return
        if word in GGUF:
            raise UsageError(f"{self.engine} does not run GGUF's {word}", hint=f"it runs: {', '.join(self.words)}")
        near = nearest(word, self.words)
        did_you_mean = f" Did you mean {near!r}?" if near else ""
        raise UsageError(
            f"{self.engine} does not run {precision!r} here.{did_you_mean}", hint=f"it runs: {', '.join(self.words)}"
        )

    def flags(self, precision: str | None, weights: Checkpoint) -> tuple[str, ...]:
        """What makes the engine run `weights` in `precision`; nothing where that is what they are.

        Raises: UsageError where they are of another format and the engine does not convert them.
        """
        if precision is None:
            return ()
        word = spelled(precision)
        if weights.quantisation is not None:
            if same_precision(word, weights.quantisation):
                return ()
            raise UsageError(
                f"the weights are {weights.quantisation} ({weights.method}), and the case asks for {precision}",
                hint=f"choose weights in {precision}, or write precision: {weights.quantisation}",
            )
        convertible = {**self.plain, **self.made}
        if word not in convertible:
            raise UsageError(
                f"{self.engine} does not make {precision} of plain weights here",
                hint=f"choose weights that are quantised to {precision}; of plain ones it makes: {', '.join(convertible)}",
            )
        return convertible[word]


def check_as_stored(menu: Menu, precision: str | None, weights: Checkpoint) -> None:
    """For engines without an option for the format of numbers. Raises: UsageError where the weights are not in the precision that
    is asked for.
    """
    menu.flags(precision, weights)
    word = None if precision is None else spelled(precision)
    if word in FLOATS and weights.dtype not in (None, word):
        raise UsageError(
            f"the weights are {weights.dtype}, the case asks for {precision}, and {menu.engine} converts nothing",
            hint=f"write precision: {weights.dtype}, or choose weights in {precision}",
        )


def safetensors_of(request: StartRequest) -> LocalModel:
    """The weights of `request`. Raises: UsageError where they are of another kind."""
    model = request.model
    if model is None or model.format != "safetensors":
        kind = "no weights" if model is None else f"{model.format} weights"
        raise UsageError(
            f"{request.case.engine} reads safetensors, but {request.case.model!r} has {kind}",
            hint="choose safetensors of this model, or make them with `bench models convert`",
        )
    return model
