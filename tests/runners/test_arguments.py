"""Engine arguments: known, typed, documented."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.errors import UsageError
from bench.runners import llamacpp, mock
from bench.runners.arguments import Argument, check_arguments, whole, word
from bench.runners.mock import MockRunner, flags_of
from bench.testing.cases import case

DOCS = Path(__file__).parents[2] / "docs" / "engines.md"


@pytest.mark.parametrize("name", [*llamacpp.ARGUMENTS, *mock.ARGUMENTS])
def test_every_argument_is_documented(name: str) -> None:
    assert f"`{name}`" in DOCS.read_text()


@pytest.mark.parametrize(
    ("argument", "good", "bad"),
    [
        (Argument(kind="int", about="x", low=1), [1, 10**9, None], [0, -1, 1.0, "1", True]),
        (Argument(kind="number", about="x", low=0), [0, 0.5, None], [-0.1, "1", False]),
        (Argument(kind="number", about="x"), [-1, -0.5], ["x"]),
        (Argument(kind="bool", about="x"), [True, False, None], [0, 1, "true"]),
        (Argument(kind="text", about="x"), ["a", None], ["", 1, True]),
        (Argument(kind="text", about="x", choices=("on", "off")), ["on", "OFF", True, False, None], ["auto", 1, ""]),
    ],
)
def test_kinds(argument: Argument, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        check_arguments("engine", {"name": value}, {"name": argument})
    for value in bad:
        with pytest.raises(UsageError, match="engine argument 'name' of engine is"):
            check_arguments("engine", {"name": value}, {"name": argument})


def test_an_unknown_name_has_its_nearest() -> None:
    known = {"threads": Argument(kind="int", about="x"), "slots": Argument(kind="int", about="x")}
    with pytest.raises(UsageError, match="Did you mean 'threads'") as caught:
        check_arguments("engine", {"treads": 1}, known)
    assert caught.value.hint == "engine takes: slots, threads"
    with pytest.raises(UsageError) as caught:
        check_arguments("engine", {"x": 1}, {})
    assert caught.value.hint == "engine takes no engine_args"


def test_yaml_booleans_are_words() -> None:
    assert [word({"a": value}, "a") for value in (True, False, "Auto", None)] == ["on", "off", "auto", None]
    assert word({}, "a") is None
    assert [whole({"a": value}, "a") for value in (3, None)] == [3, None]


def test_mock_arguments_become_flags() -> None:
    args: dict[str, Any] = {"ttft_ms": 1.5, "quirk": "eos=3, hang ,", "seed": None, "max_in_flight": 4}
    assert flags_of(case(engine="mock", engine_args=args)) == (
        "--model=tiny",
        "--ttft-ms=1.5",
        "--quirk=eos=3",
        "--quirk=hang",
        "--max-in-flight=4",
    )


def test_the_mock_runner_refuses_what_it_does_not_know() -> None:
    with pytest.raises(UsageError, match="Did you mean 'quirk'"):
        MockRunner().check(case(engine="mock", engine_args={"quirks": "hang"}))


def test_the_mock_runner_hands_on_the_simulated_devices_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The probe starts before the engine: both are told of the file by the same variable."""
    simulated, plain = (case(engine="mock", engine_args={"sim": value}) for value in (True, False))
    monkeypatch.delenv("BENCH_SIM_EMISSION", raising=False)
    with pytest.raises(UsageError, match="needs BENCH_SIM_EMISSION") as caught:
        MockRunner().check(simulated)
    assert "export BENCH_SIM_EMISSION" in (caught.value.hint or "")
    MockRunner().check(plain)
    monkeypatch.setenv("BENCH_SIM_EMISSION", str(tmp_path / "emission"))
    MockRunner().check(simulated)
    assert flags_of(simulated)[-1] == f"--emission-file={(tmp_path / 'emission').resolve()}"
    assert flags_of(plain) == ("--model=tiny",)
