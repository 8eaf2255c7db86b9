"""Meters of one's own, run for real: commands, streams and files that grow."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from bench.ports import Probe
from bench.probes import background
from bench.probes.external import UID, ExternalProbe
from bench.probes.external_config import Config, Metered, load, parse
from bench.probes.values import Unavailable
from bench.records import Reading
from bench.testing.probes import ProbeConformance
from tests.probes.polling import until

Make = Callable[..., ExternalProbe]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """A probe under a configuration."""
    made: list[ExternalProbe] = []

    def make(**config: object) -> ExternalProbe:
        path = tmp_path / "meter.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        made.append(ExternalProbe({"BENCH_EXTERNAL_CONFIG": str(path)}))
        return made[-1]

    yield make
    for probe in made:
        probe.close()


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


class TestExternalConformance(ProbeConformance):
    name = "external"

    @pytest.fixture
    def working(self, make: Make) -> Probe:
        return make(command=python("print(231.5)"), unit="W")

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return ExternalProbe({})


def test_a_command_that_prints_watts(make: Make) -> None:
    probe = make(command=python("print('231500')"), unit="mW", name="PDU outlet 7", gain_error=0.01)
    (device,) = probe.discover().devices
    assert (device.uid, device.scope, device.name, device.quality) == (UID, "node", "PDU outlet 7", "measured")
    assert device.power is not None
    assert (device.power.unit, device.power.gain_error) == ("mW", 0.01)
    reading = probe.sample(UID)
    assert reading.power_w == pytest.approx(231.5)
    assert reading.after_ns - reading.before_ns > 1_000_000


def test_a_command_with_a_table_and_a_counter(make: Make) -> None:
    code = "print('time,watts,kwh'); print('12:00, 400 ,1.5')"
    probe = make(command=python(code), unit="W", power="watts", energy="kwh", energy_unit="kWh", scope="accelerator")
    (device,) = probe.discover().devices
    assert device.scope == "accelerator"
    reading = probe.sample(UID)
    assert reading.power_w == 400.0
    assert reading.energy_j == pytest.approx(5.4e6)


def test_a_counter_alone(make: Make) -> None:
    probe = make(command=python("print('{\"wh\": 20}')"), energy="wh", energy_unit="Wh")
    (device,) = probe.discover().devices
    assert device.power is None
    assert device.power_reason == "the meter counts energy only"
    assert probe.sample(UID).energy_j == 72_000.0


def test_arguments_pass_through_no_shell(make: Make, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    probe = make(command=[*python("import sys; print(len(sys.argv[1]))"), f"$(touch {witness}); touch {witness}"], unit="W")
    probe.discover()
    assert probe.sample(UID).power_w == len(f"$(touch {witness}); touch {witness}")
    assert not witness.exists()


class TestStream:
    CODE = "import sys,time\nfor w in {}:\n print(w, flush=True); time.sleep(0.02)\ntime.sleep(60)"

    def test_lines_arrive_as_they_are_printed(self, make: Make) -> None:
        probe = make(command=python(self.CODE.format(list(range(100, 150)))), mode="stream", unit="W", period_s=0.05)
        probe.discover()
        seen: list[Reading] = []

        def last() -> bool:
            seen.append(probe.sample(UID))
            return seen[-1].power_w == 149

        until(last)
        stamps = [reading.before_ns for reading in seen]
        assert stamps == sorted(stamps)
        assert len({reading.power_w for reading in seen}) > 10

    @pytest.mark.parametrize("rows", [["t,watts", "1,120", "2,130"], ['{"watts": 120, "t": 1}', '{"watts": 130, "t": 2}']])
    def test_a_header_and_json_lines(self, make: Make, rows: list[str]) -> None:
        probe = make(command=python(self.CODE.format(rows)), mode="stream", unit="W", power="watts")
        (device,) = probe.discover().devices
        assert device.power is not None
        last = until(lambda: reading if (reading := probe.sample(UID)).power_w != 120 else None)
        assert (last.power_w, last.energy_j) == (130, None)

    def test_a_meter_that_ends_leaves_nothing(self, make: Make) -> None:
        probe = make(command=python("print(100, flush=True); input()"), mode="stream", unit="W")
        assert [device.uid for device in probe.discover().devices] == [UID]
        gone = until(lambda: reading if (reading := probe.sample(UID)).power_w is None else None)
        assert gone.energy_j is None
        assert probe.sample(UID).before_ns > gone.before_ns

    def test_a_meter_that_falls_silent_goes_stale(self, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(background, "SHORTEST_STALE_S", 0.2)
        probe = make(
            command=python("import time; print(100, flush=True); time.sleep(60)"), mode="stream", unit="W", period_s=0.05
        )
        probe.discover()
        assert probe.sample(UID).power_w == 100.0
        until(lambda: probe.sample(UID).power_w is None)

    def test_closing_ends_the_command(self, make: Make) -> None:
        probe = make(command=python("import time; print(100, flush=True); time.sleep(60)"), mode="stream", unit="W")
        probe.discover()
        way = probe._way
        probe.close()
        assert way is not None
        assert way._process.poll() is not None  # type: ignore[union-attr]


class TestFile:
    def test_rows_that_are_appended(self, make: Make, tmp_path: Path) -> None:
        log = tmp_path / "meter.csv"
        log.write_text("time,power_w\n1,200\n", encoding="utf-8")
        probe = make(csv=str(log), unit="W", power="power_w", period_s=0.05)
        probe.discover()
        first = probe.sample(UID)
        assert first.power_w == 200.0
        with log.open("a", encoding="utf-8") as file:
            file.write("2,250\n3,2")  # the last row is not whole yet
        until(lambda: probe.sample(UID).power_w == 250.0)
        assert probe.sample(UID).before_ns > first.before_ns

    def test_a_file_that_no_longer_grows_is_not_read_again(
        self, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The last row of a dead logger must not become a constant power."""
        monkeypatch.setattr(background, "SHORTEST_STALE_S", 0.3)
        log = tmp_path / "meter.csv"
        log.write_text("power_w\n200\n", encoding="utf-8")
        probe = make(csv=str(log), unit="W", power="power_w", period_s=0.05)
        probe.discover()
        first = probe.sample(UID)
        assert (first.power_w, probe.sample(UID).before_ns) == (200.0, first.before_ns)
        until(lambda: probe.sample(UID).power_w is None)

    def test_no_file_is_a_problem(self, make: Make, tmp_path: Path) -> None:
        (problem,) = make(csv=str(tmp_path / "none.csv"), unit="W", power="w").discover().problems
        assert "No such file" in problem.problem


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "either a command or a csv file"),
        ({"command": ["a"], "csv": "b", "unit": "W"}, "either a command or a csv file"),
        ({"command": "rm -rf /", "unit": "W"}, "valid list"),
        ({"command": ["a"]}, "state the unit"),
        ({"command": ["a"], "unit": "hp"}, "'W', 'mW'"),
        ({"csv": "a", "unit": "W"}, "column"),
        ({"command": ["a"], "unit": "W", "energy": "e"}, "go together"),
        ({"command": ["a"], "unit": "W", "watts": 1}, "Extra inputs"),
        ({"command": ["a"], "unit": "W", "scope": "process"}, "'node' or 'accelerator'"),
    ],
)
def test_a_configuration_that_is_none_says_what_is_wrong(tmp_path: Path, config: dict[str, object], words: str) -> None:
    path = tmp_path / "meter.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    with pytest.raises(Unavailable, match=words):
        load(path)
    (problem,) = ExternalProbe({"BENCH_EXTERNAL_CONFIG": str(path)}).discover().problems
    assert problem.subject == str(path)


@pytest.mark.parametrize("code", ["", "import sys; sys.exit(3)", "print('N/A')", "print(-5)", "print('nan')", "print(99999999)"])
def test_a_command_that_tells_nothing_is_a_problem_not_a_number(make: Make, code: str) -> None:
    found = make(command=python(code), unit="W").discover()
    assert found.devices == ()
    assert len(found.problems) == 1


ONE = Config(command=["x"], unit="W")
KEYED = Config(command=["x"], unit="kW", power="p")


@given(st.floats(0.5, 50_000))
def test_any_believable_number_is_read_back(watts: float) -> None:
    assert parse(f" {watts!r}\n", ONE) == Metered(power_w=watts, energy_j=None)
    line = json.dumps({"x": 1, "p": watts / 1000})
    assert parse(line, KEYED).power_w == pytest.approx(watts)


@given(st.text(max_size=80))
@example("0\r0")
def test_any_other_line_is_refused(line: str) -> None:
    for config, header in ((ONE, None), (KEYED, None), (KEYED, ["t", "p"])):
        try:
            found = parse(line, config, header)
        except Unavailable:
            continue
        assert found.power_w is not None
        assert 0.5 <= found.power_w <= 50_000
