"""Chips on a made-up bus, and a real gRPC server that speaks the runtime's protocol."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.ports import Probe
from bench.probes.host import ChildProbeHost
from bench.probes.placement import resolve
from bench.probes.presence import Roots, opened_by_signs
from bench.probes.tpu import metrics, protobuf
from bench.probes.tpu.metrics import BUSY, TOTAL, USED
from bench.probes.tpu.probe import TpuProbe
from bench.probes.values import Unavailable
from bench.testing.probes import ProbeConformance
from tests.probes.polling import until
from tests.probes.tpu.host import Series, Workload, add_chip, encoded, of_two, recorded_metrics, serving, two_chips
from tests.probes.trees import make_roots, replace_text, roots_env

FIRST, SECOND = "tpu:pci:0000:00:04.0", "tpu:pci:0000:00:05.0"
NOBODY = {"TPU_RUNTIME_METRICS_PORTS": "1", "PATH": ""}


@pytest.fixture
def workload() -> Iterator[Workload]:
    with serving(of_two()) as workload:
        yield workload


@pytest.fixture
def probe(roots: Roots, workload: Workload) -> Iterator[TpuProbe]:
    two_chips(roots)
    probe = TpuProbe(roots, workload.env())
    yield probe
    probe.close()


def test_a_chip_is_described_and_says_that_it_has_no_power(probe: TpuProbe) -> None:
    found = probe.discover()
    device = found.devices[0]
    assert (device.uid, device.name, device.pci, device.scope) == (FIRST, "TPU v6e", "0000:00:04.0", "accelerator")
    assert (device.power, device.energy) == (None, None)
    assert device.power_reason == "a TPU tells nobody its power: there is no interface for it"
    for name in ("energy_j", "power_limit_w", "temperature_c", "clock_mhz", "throttle"):
        assert "there is no interface for it" in device.reasons[name]
    assert found.problems == ()


def test_memory_and_use_of_each_chip(probe: TpuProbe) -> None:
    """Numbers of devices need not start at 0, nor come in order."""
    probe.discover()
    first, second = probe.sample(FIRST), probe.sample(SECOND)
    assert (first.memory_used_b, first.utilisation) == (19_810_541_568, 1.0)
    assert (second.memory_used_b, second.utilisation) == (11_166_914_560, 0.125)
    assert (first.power_w, first.energy_j) == (None, None)


def test_the_size_is_told_while_a_workload_runs(probe: TpuProbe) -> None:
    assert [device.memory_total_b for device in probe.discover().devices] == [33_550_237_696] * 2


def test_the_recorded_replies() -> None:
    """Memory by core, use by chip: a chip of two cores."""
    answers = {name: metrics.series(encoded(name, points)) for name, points in recorded_metrics().items()}
    assert metrics.memory_b(answers, TOTAL, [2], 0) == 2 * 33_550_237_696
    assert metrics.memory_b(answers, USED, [2], 0) == 19_810_541_568 + 11_166_914_560
    assert metrics.busy(answers, [2], 0) == 1.0


@pytest.mark.parametrize(
    ("busy", "shares"),
    [
        ([(0, 100.0), (1, 50.0)], (1.0, 0.5)),  # of each chip
        ([(0, 100.0), (1, 50.0), (2, 0.0), (3, 10.0)], (0.75, 0.05)),  # of each core, as on TPU7x
    ],
)
def test_chips_of_two_cores(busy: Series, shares: tuple[float, float]) -> None:
    gib = 1 << 30
    told: metrics.Told = {TOTAL: [8 * gib] * 4, USED: [gib, 2 * gib, 3 * gib, 4 * gib], BUSY: [value for _, value in busy]}
    assert [metrics.memory_b(told, USED, [2, 2], chip) for chip in (0, 1)] == [3 * gib, 7 * gib]
    assert tuple(metrics.busy(told, [2, 2], chip) for chip in (0, 1)) == pytest.approx(shares)


def test_a_workload_on_some_of_the_chips_does_not_say_which(probe: TpuProbe, workload: Workload) -> None:
    workload.metrics = {name: points[:1] for name, points in workload.metrics.items()}
    device = probe.discover().devices[0]
    assert "tells of 1 of 2 cores, and not of which ones" in device.reasons["memory_used_b"]
    assert probe.sample(FIRST).memory_used_b is None


def test_several_processes_serve_a_port_each(roots: Roots) -> None:
    """As one process a chip: each numbers its own from 0."""
    two_chips(roots)
    each = [{name: [(0, sorted(points)[place][1])] for name, points in of_two().items()} for place in (0, 1)]
    with serving(each[0]) as first, serving(each[1]) as second:
        probe = TpuProbe(roots, {"TPU_RUNTIME_METRICS_PORTS": f"{first.port}, {second.port}"})
        probe.discover()
        assert [probe.sample(uid).memory_used_b for uid in (FIRST, SECOND)] == [19_810_541_568, 11_166_914_560]
        probe.close()


def test_a_metric_that_a_runtime_does_not_know_costs_itself(probe: TpuProbe, workload: Workload) -> None:
    del workload.metrics[BUSY]
    probe.discover()
    reading = probe.sample(FIRST)
    assert (reading.memory_used_b, reading.utilisation) == (19_810_541_568, None)


@pytest.mark.parametrize(
    ("name", "points"),
    [
        (TOTAL, [(8, 0), (9, 0)]),
        (USED, [(8, 1 << 40), (9, 1 << 40)]),
        (USED, [(8, -1), (9, -1)]),
        (USED, []),
    ],
)
def test_what_is_no_reading_is_missing(probe: TpuProbe, workload: Workload, name: str, points: Series) -> None:
    workload.metrics[name] = points
    probe.discover()
    assert probe.sample(FIRST).memory_used_b is None


@pytest.mark.parametrize("raw", [b"\xff\xff\xff", b"\x0a\x7f", b"not a message"])
def test_an_answer_that_is_no_message_is_missing(probe: TpuProbe, workload: Workload, raw: bytes) -> None:
    workload.raw[USED] = raw
    probe.discover()
    assert probe.sample(FIRST).memory_used_b is None


class TestNobodyServes:
    def test_chips_are_listed_and_memory_says_why(self, roots: Roots) -> None:
        two_chips(roots)
        probe = TpuProbe(roots, NOBODY)
        found = probe.discover()
        assert [device.uid for device in found.devices] == [FIRST, SECOND]
        assert "a TPU tells only while one runs" in found.devices[0].reasons["memory_used_b"]
        assert probe.sample(FIRST).memory_used_b is None
        probe.close()

    def test_a_workload_that_starts_later_is_found(self, roots: Roots) -> None:
        """In the child, as in a run: chips are looked for before the engine is there."""
        two_chips(roots)
        with socket.create_server(("localhost", 0)) as taken:
            port = taken.getsockname()[1]
        host = ChildProbeHost({**roots_env(roots), "TPU_RUNTIME_METRICS_PORTS": str(port)}, deadline_s=30.0)
        stream = host.open("tpu", 0.05)
        try:
            assert [device.uid for device in stream.discovery().devices] == [FIRST, SECOND]
            with serving(of_two(), port):
                memory = until(
                    lambda: [r.memory_used_b for r in stream.drain() if r.uid == FIRST and r.memory_used_b is not None]
                )
            assert memory[0] == 19_810_541_568
            assert stream.ended() is None
        finally:
            stream.close()

    def test_without_grpcio_the_fix_is_told(self, roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
        two_chips(roots)
        monkeypatch.setitem(sys.modules, "grpc", None)
        found = TpuProbe(roots, NOBODY).discover()
        assert len(found.devices) == 2
        (problem,) = found.problems
        assert "grpcio is not installed" in problem.problem
        assert "tokjoule[tpu]" in problem.fix


class TestChips:
    @pytest.mark.parametrize(
        ("device", "subsystem", "name"),
        [
            ("0x0027", "0x004e", "TPU v2"),
            ("0x0027", "0x004f", "TPU v3"),
            ("0x0027", "0x1234", "TPU v2 or v3"),
            ("0x005e", "0x0000", "TPU v4"),
            ("0x0062", "0x0000", "TPU v5p"),
            ("0x0063", "0x0000", "TPU v5e"),
            ("0x006f", "0x0000", "TPU v6e"),
            ("0x0076", "0x0000", "TPU7x"),
        ],
    )
    def test_generations(self, roots: Roots, device: str, subsystem: str, name: str) -> None:
        add_chip(roots, "0000:00:04.0", device, subsystem=subsystem)
        probe = TpuProbe(roots, NOBODY)
        assert [one.name for one in probe.discover().devices] == [name]
        probe.close()

    def test_two_functions_are_one_chip(self, roots: Roots) -> None:
        for place, address in enumerate(("0000:00:04.0", "0000:00:04.1", "0000:00:05.0", "0000:00:05.1")):
            add_chip(roots, address, "0x0076", group=place)
        probe = TpuProbe(roots, NOBODY)
        assert [one.pci for one in probe.discover().devices] == ["0000:00:04.0", "0000:00:05.0"]
        probe.close()

    def test_numbers_are_those_of_the_nodes(self, roots: Roots) -> None:
        for address, group in (("0000:00:04.0", 10), ("0000:00:05.0", 2), ("0000:00:06.0", 9)):
            add_chip(roots, address, group=group)
        probe = TpuProbe(roots, NOBODY)
        assert [one.pci for one in probe.discover().devices] == ["0000:00:05.0", "0000:00:06.0", "0000:00:04.0"]
        probe.close()

    @pytest.mark.parametrize(("device", "kind"), [("0x0042", "0x020000"), ("0x001f", "0x010802")])
    def test_network_cards_and_disks_of_the_cloud_are_no_chips(self, roots: Roots, device: str, kind: str) -> None:
        add_chip(roots, "0000:00:04.0", device)
        replace_text(roots.sysfs / "bus/pci/devices/0000:00:04.0/class", kind + "\n")
        assert "tpu" not in opened_by_signs(roots_env(roots))
        found = TpuProbe(roots, NOBODY).discover()
        assert (found.devices, found.problems) == ((), ())

    def test_a_chip_opens_the_probe(self, roots: Roots) -> None:
        two_chips(roots)
        assert "tpu" in opened_by_signs(roots_env(roots))


@pytest.mark.parametrize(
    ("wanted", "chips", "bounds"),
    [(["tpu:1"], "1", "1,1,1"), (["tpu:0", "tpu:1"], "0,1", "1,2,1"), (["tpu"], "0,1,2,3", "2,2,1")],
)
def test_an_engine_is_shown_its_chips_as_a_slice_of_their_number(
    roots: Roots, wanted: list[str], chips: str, bounds: str
) -> None:
    for place in range(4):
        add_chip(roots, f"0000:00:0{4 + place}.0", group=place)
    probe = TpuProbe(roots, NOBODY)
    assert resolve(probe.discover().devices, wanted).visibility_env == {
        "TPU_VISIBLE_CHIPS": chips,
        "TPU_PROCESS_BOUNDS": "1,1,1",
        "TPU_CHIPS_PER_PROCESS_BOUNDS": bounds,
    }
    probe.close()


class TestProtobuf:
    """The bytes are of protobuf 7.36, with the code that it generates for `tpu_metric_service.proto`."""

    @pytest.mark.parametrize(
        ("written", "values"),
        [
            (
                (
                    "0a7a0a227470752e72756e74696d652e68626d2e6d656d6f72792e75736167652e6279746573120a48424d20696e207573651a230a0f0a09646576"
                    "6963652d69641202180112080880f7c4d50610051a061080b0e6cc291a230a0f0a096465766963652d69641202180012080880f7c4d50610051a06"
                    "1080c0b3e649"
                ),
                [19_810_541_568.0, 11_166_914_560.0],
            ),
            (
                (
                    "0a480a287470752e72756e74696d652e74656e736f72636f72652e647574796379636c652e70657263656e741a1c0a0f0a096465766963652d6964"
                    "120218001a09090000000000c04240"
                ),
                [37.5],
            ),
            ("", []),
        ],
    )
    def test_replies(self, written: str, values: list[float]) -> None:
        assert metrics.series(bytes.fromhex(written)) == values

    def test_a_request(self) -> None:
        written = "0a227470752e72756e74696d652e68626d2e6d656d6f72792e746f74616c2e6279746573"
        assert protobuf.text_field(1, TOTAL).hex() == written

    def test_negative_numbers(self) -> None:
        written = bytes.fromhex("0a1e1a1c0a0d120b18ffffffffffffffffff011a0b10fbffffffffffffffff01")
        with pytest.raises(Unavailable, match=r"-5 is no reading"):
            metrics.series(written)

    @given(st.lists(st.tuples(st.integers(0, 1 << 40), st.one_of(st.integers(0, 1 << 50), st.floats(0, 1e15))), max_size=20))
    def test_any_values_come_through_in_the_order_of_their_devices(self, points: list[tuple[int, float]]) -> None:
        assert metrics.series(encoded(USED, points)) == [float(value) for _, value in sorted(points)]

    @given(st.integers(1, 400))
    def test_a_reply_that_is_cut_off_is_refused_or_tells_no_other_value(self, end: int) -> None:
        whole = encoded(USED, of_two()[USED])
        try:
            left = metrics.series(whole[: end % len(whole)])
        except Unavailable:
            return
        assert left == []

    @given(st.binary(max_size=100))
    def test_any_other_bytes_are_refused_or_read_without_a_crash(self, data: bytes) -> None:
        try:
            metrics.series(data)
        except Unavailable:
            return


class TestTpuConformance(ProbeConformance):
    name = "tpu"
    vendor_modules = ("grpc", "tpu_info")

    @pytest.fixture
    def working(self, probe: TpuProbe) -> Probe:
        return probe

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return TpuProbe(make_roots(tmp_path / "none"), NOBODY)
