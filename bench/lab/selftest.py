"""Every sensor held against itself and its vendor's tool: raw and converted values, timing, counter against integral."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.clock import SYSTEM, Clock
from bench.probes.stream import ChildProbeStream
from bench.probes.vendor_tools import ToolSays, tool_values
from bench.probes.wire import RawValue
from bench.records import DeviceInfo, ProbeProblem, Reading, SensorInfo, Telemetry, Window
from bench.session.telemetry import Recorder
from bench.timing.energies import HARMLESS
from bench.timing.recorded import RecordedDevice, recorded_devices

TOOL_DISAGREES = 0.10
"""Our power and the tool's may differ by this share: they are never read at the same moment."""
_TOOL_NOISE_W = 5.0
NEXT_STEPS: Mapping[str, str] = {
    "power_methods_disagree": "bench devices selftest --seconds 60 with nothing running; if it stays, one of the two is wrong "
    "by so much: hold both against a wall meter, and report it with the output of --json",
    "counter_reset": "look for a reset in dmesg and for a tool that clears counters, then test again",
    "counter_stuck": "a newer driver may mend the counter; until then joules are the integral of power",
    "power_coverage": "test again with nothing else running; if it stays, the driver answers too slowly: the vendor's tool and "
    "dmesg tell more",
    "below_sensor_resolution": "bench devices selftest --seconds 60: this sensor renews too rarely for a shorter window",
    "impossible": "the value is in another unit than the driver's header says: report it with the output of --json",
}
"""What to do about a fault, by its code."""

Tools = Callable[[str, Sequence[DeviceInfo]], dict[str, ToolSays]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorTest:
    """One sensor: `raw` in its `unit` as the vendor hands it out, `converted` in W or J, both read at about the same time."""

    quantity: str
    api: str
    unit: str
    raw: float | None
    converted: float | None
    averaging_window_s: float | None
    update_period_s: float | None
    call_cost_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTest:
    """One device. `counter_j` and `integral_j`: its energy over the window by each method, None where there is no such sensor
    or it did not see all of the window. `tool`: what the vendor's command line says. `faults` make the test fail; `notes` don't.
    """

    device: DeviceInfo
    poll_period_s: float
    sensors: tuple[SensorTest, ...]
    readings: int
    counter_j: float | None
    integral_j: float | None
    tool: ToolSays | None
    faults: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def next_steps(self) -> tuple[str, ...]:
        """What to do about the faults, each once."""
        codes = dict.fromkeys(text.partition(":")[0] for text in self.faults)
        return tuple(NEXT_STEPS[code] for code in codes if code in NEXT_STEPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selftest:
    """Every device that has a sensor, and what can't be read."""

    seconds: float
    devices: tuple[DeviceTest, ...]
    problems: tuple[ProbeProblem, ...]

    @property
    def passed(self) -> bool:
        """Whether no device has a fault."""
        return not any(test.faults for test in self.devices)


def selftest(recorder: Recorder, seconds: float, *, tools: Tools = tool_values, clock: Clock = SYSTEM) -> Selftest:
    """Watch every device for `seconds`, then ask for raw values and for the tool's."""
    recorder.settle()
    t0_ns = clock.monotonic_ns()
    recorder.rest(seconds)
    window = Window(t0_ns=t0_ns, t1_ns=t0_ns + round(seconds * 1e9))
    raw: dict[str, tuple[RawValue, ...]] = {}
    periods: dict[str, float] = {}
    says: dict[str, ToolSays] = {}
    for stream in recorder.streams():
        if isinstance(stream, ChildProbeStream):
            raw |= stream.raw()
            periods[stream.name] = stream.period_s
            says |= tools(stream.name, stream.discovery().devices)
    telemetry = recorder.telemetry()
    latest = _latest(telemetry)
    found = recorded_devices(telemetry, window)
    return Selftest(
        seconds=seconds,
        devices=tuple(
            _test(
                one,
                latest.get(one.device.uid),
                raw.get(one.device.uid, ()),
                says.get(one.device.uid),
                periods.get(one.device.probe, telemetry.period_s),
            )
            for one in found
        ),
        problems=telemetry.problems,
    )


def _latest(telemetry: Telemetry) -> Mapping[str, Reading]:
    return {reading.uid: reading for reading in telemetry.readings}


def _test(
    one: RecordedDevice, last: Reading | None, raw: tuple[RawValue, ...], says: ToolSays | None, period_s: float
) -> DeviceTest:
    device = one.device
    energy_j = one.joules.energy_j
    by_counter = one.method == "counter"
    harmless = HARMLESS - {"counter_stuck"}
    return DeviceTest(
        device=device,
        poll_period_s=period_s,
        sensors=tuple(
            _sensor(quantity, sensor, last, raw)
            for quantity, sensor in (("power_w", device.power), ("energy_j", device.energy))
            if sensor is not None
        ),
        readings=one.readings,
        counter_j=energy_j if by_counter else None,
        integral_j=one.other_j if by_counter else energy_j,
        tool=says,
        faults=tuple(f"{fault.code}: {fault.message}" for fault in one.faults if fault.code not in harmless),
        notes=(*(f"{fault.code}: {fault.message}" for fault in one.faults if fault.code in harmless), *_beside(says, one)),
    )


def _beside(says: ToolSays | None, one: RecordedDevice) -> tuple[str, ...]:
    """Where the tool's power is outside all that was read in the window, and then some."""
    if says is None or says.power_w is None or one.least_w is None or one.most_w is None:
        return ()
    apart_w = max(one.least_w - says.power_w, says.power_w - one.most_w)
    if apart_w <= max(_TOOL_NOISE_W, TOOL_DISAGREES * says.power_w):
        return ()
    return (f"{says.tool} says {says.power_w:.1f} W; between {one.least_w:.1f} and {one.most_w:.1f} W were read",)


def _sensor(quantity: str, sensor: SensorInfo, last: Reading | None, raw: tuple[RawValue, ...]) -> SensorTest:
    unconverted = next((value for value in raw if value.quantity == quantity), None)
    return SensorTest(
        quantity=quantity,
        api=sensor.api,
        unit=unconverted.unit if unconverted else sensor.unit,
        raw=unconverted.value if unconverted else None,
        converted=getattr(last, quantity) if last is not None else None,
        averaging_window_s=sensor.averaging_window_s,
        update_period_s=sensor.update_period_s,
        call_cost_s=sensor.call_cost_s,
    )
