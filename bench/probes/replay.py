"""Recorded telemetry, played back on the present clock: a pipeline without hardware sees a real board's readings.

BENCH_REPLAY_FILE names a shard's `telemetry.parquet` or JSON lines of readings; a `trial.json` beside it tells the devices. A
replayed measurement is none of this run's, so all of it is marked `simulated`.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import structs

from bench import codec
from bench.clock import SYSTEM, Clock
from bench.errors import ProbeError
from bench.ports import Discovery
from bench.records import DeviceInfo, ProbeProblem, Reading, SensorInfo

NAME = "replay"
_COLUMNS = tuple(field.name for field in structs.fields(Reading))


class CannotReplay(Exception):
    """A recording that can't be read; the text says why."""


class ReplayProbe:
    """The recording's devices. It begins at discovery and stands still at its end."""

    name = NAME

    def __init__(self, env: Mapping[str, str] | None = None, clock: Clock = SYSTEM) -> None:
        self._env = os.environ if env is None else env
        self._clock = clock
        self._shift_ns: int | None = None
        self._readings: dict[str, list[Reading]] = {}

    def discover(self) -> Discovery:
        path = self._env.get("BENCH_REPLAY_FILE")
        if not path:
            return Discovery()
        try:
            readings = recorded(Path(path))
            described = _described(Path(path).with_name("trial.json"))
        except CannotReplay as error:
            fix = "name a telemetry.parquet of a shard, or JSON lines of readings"
            return Discovery(problems=(ProbeProblem(probe=NAME, subject=path, problem=str(error), fix=fix),))
        self._readings = {}
        for reading in sorted(readings, key=lambda reading: reading.before_ns):
            self._readings.setdefault(f"{NAME}:{reading.uid}", []).append(reading)
        if self._shift_ns is None:
            first_ns = min(each[0].before_ns for each in self._readings.values())
            self._shift_ns = self._clock.monotonic_ns() - first_ns
        return Discovery(
            devices=tuple(_info(uid, index, self._readings[uid], described) for index, uid in enumerate(self._readings))
        )

    def watch(self, pids: Iterable[int]) -> Discovery:
        return Discovery()

    def sample(self, uid: str) -> Reading:
        """The newest recorded reading, with its stamps moved to the present."""
        readings = self._readings.get(uid)
        if readings is None or self._shift_ns is None:
            raise ProbeError(f"the replay probe has no device {uid!r}")
        now_ns = self._clock.monotonic_ns() - self._shift_ns
        at = max(0, bisect_right(readings, now_ns, key=lambda reading: reading.after_ns) - 1)
        found = readings[at]
        return structs.replace(
            found, uid=uid, before_ns=found.before_ns + self._shift_ns, after_ns=found.after_ns + self._shift_ns
        )

    def close(self) -> None:
        self._readings = {}


def recorded(path: Path) -> list[Reading]:
    """All readings of a recording. Raises: CannotReplay."""
    try:
        rows = _parquet(path) if path.suffix == ".parquet" else _lines(path)
        readings = [codec.decode(json.dumps(row).encode(), Reading) for row in rows]
    except OSError as error:
        raise CannotReplay(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise CannotReplay(f"{path} holds no readings: {' '.join(str(error).split())[:200]}") from error
    if not readings:
        raise CannotReplay(f"{path} holds no readings")
    return readings


def _lines(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [row for line in lines if line.strip() and isinstance(row := json.loads(line), dict) and "uid" in row]


def _parquet(path: Path) -> list[dict[str, Any]]:
    import duckdb  # only here: a child that plays nothing back need not load it

    if not path.is_file():
        raise CannotReplay(f"{path} is not there")
    try:
        with duckdb.connect() as database:
            cursor = database.execute("SELECT * FROM read_parquet(?)", [str(path)])
            names = [column[0] for column in cursor.description or ()]
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    except duckdb.Error as error:
        raise CannotReplay(f"{path} can't be read as Parquet: {str(error).splitlines()[0]}") from error
    return [{name: row[name] for name in _COLUMNS if row.get(name) is not None} for row in rows]


def _described(path: Path) -> dict[str, DeviceInfo]:
    """The devices as the recording's own trial knew them; none where it is not beside."""
    try:
        devices = json.loads(path.read_text(encoding="utf-8")).get("devices", [])
        found = [codec.decode(json.dumps(device).encode(), DeviceInfo) for device in devices]
    except OSError:
        return {}
    except (ValueError, AttributeError) as error:
        raise CannotReplay(f"{path} does not tell its devices: {' '.join(str(error).split())[:200]}") from error
    return {device.uid: device for device in found}


def _info(uid: str, index: int, readings: list[Reading], described: Mapping[str, DeviceInfo]) -> DeviceInfo:
    original = readings[0].uid
    known = described.get(original)
    power = energy = None
    if any(reading.power_w is not None for reading in readings):
        power = known.power if known and known.power else SensorInfo(api="recorded", unit="W")
    if any(reading.energy_j is not None for reading in readings):
        energy = known.energy if known and known.energy else SensorInfo(api="recorded", unit="J")
    base = known or DeviceInfo(
        uid=uid, probe=NAME, vendor="recorded", name=f"recorded {original}", index=index, scope="accelerator"
    )
    return structs.replace(
        base,
        uid=uid,
        probe=NAME,
        index=index,
        quality="simulated",
        board=f"{NAME}:{base.board}" if known and base.board else uid,
        covers=tuple(f"{NAME}:{covered}" for covered in base.covers),
        power=None if power is None else structs.replace(power, api=f"replay of {power.api.removeprefix('replay of ')}"),
        energy=None if energy is None else structs.replace(energy, api=f"replay of {energy.api.removeprefix('replay of ')}"),
        power_reason=None if power is not None else base.power_reason or "the recording has no power",
    )
