"""The machine's power: a stand-in for ipmitool on the path, and a management controller on a local port."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bench import codec
from bench.ports import Probe
from bench.probes.node import UID, NodeProbe, dcmi_w, redfish_w
from bench.probes.values import Unavailable
from bench.testing.probes import ProbeConformance
from tests.probes.polling import until
from tests.probes.trees import replace_text

DCMI = """
    Instantaneous power reading:                   {watts} Watts
    Minimum during sampling period:                  3 Watts
    Maximum during sampling period:               1004 Watts
    Average power reading over sample period:      410 Watts
    IPMI timestamp:                           11/30/26 12:00:00 UTC    Sampling period:                          00000001 Seconds.
    Power reading state is:                   {state}

"""
PASSWORD = "correct-horse-9"


def install_ipmitool(folder: Path, text: str) -> dict[str, str]:
    """`ipmitool` that prints `text`; the environment that finds it first."""
    folder.mkdir(exist_ok=True)
    replace_text(folder / "answer", text)
    tool = folder / "ipmitool"
    tool.write_text('#!/bin/sh\n[ "$1 $2 $3" = "dcmi power reading" ] || exit 9\ncat "${0%/*}/answer"\n', encoding="utf-8")
    tool.chmod(0o755)
    return {"BENCH_NODE_POWER": "ipmi", "PATH": f"{folder}:/usr/bin:/bin"}


class Controller:
    """A management controller with two chassis."""

    def __init__(self) -> None:
        self.watts: list[Any] = [400, 12.5]
        self.status = 200
        self.inside: dict[int, int] = {}
        """Which chassis is in which."""
        self.parts: list[dict[str, Any]] = []
        """What the first chassis lists behind its own power."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        expected = "Basic " + base64.b64encode(f"admin:{PASSWORD}".encode()).decode()
        status = self.status if handler.headers.get("Authorization") == expected else 401
        body = json.dumps(self.page(handler.path)).encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def page(self, path: str) -> dict[str, Any]:
        if path == "/redfish/v1/Chassis":
            return {"Members": [{"@odata.id": f"/redfish/v1/Chassis/{i}"} for i in range(len(self.watts))]}
        if path.endswith("/Power"):
            number = int(path.split("/")[-2])
            return {"PowerControl": [{"PowerConsumedWatts": self.watts[number]}, *(self.parts if number == 0 else [])]}
        outside = self.inside.get(int(path.rsplit("/", maxsplit=1)[-1]))
        links = {} if outside is None else {"ContainedBy": {"@odata.id": f"/redfish/v1/Chassis/{outside}"}}
        return {"Power": {"@odata.id": f"{path}/Power"}, "Links": links}

    def env(self, **more: str) -> dict[str, str]:
        account = {"BENCH_REDFISH_USER": "admin", "BENCH_REDFISH_PASSWORD": PASSWORD}
        return {"BENCH_NODE_POWER": "redfish", "BENCH_REDFISH_URL": self.url, **account, **more}


@pytest.fixture
def controller() -> Iterator[Controller]:
    made = Controller()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[str, str]], NodeProbe]]:
    made: list[NodeProbe] = []

    def make(env: dict[str, str]) -> NodeProbe:
        if "PATH" in env:
            monkeypatch.setenv("PATH", env["PATH"])
        made.append(NodeProbe(env))
        return made[-1]

    yield make
    for probe in made:
        probe.close()


Make = Callable[[dict[str, str]], NodeProbe]


class TestIpmiConformance(ProbeConformance):
    name = "node"

    @pytest.fixture
    def working(self, make: Make, tmp_path: Path) -> Probe:
        return make(install_ipmitool(tmp_path / "bin", DCMI.format(watts=412, state="activated")))

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return NodeProbe({})


class TestRedfishConformance(ProbeConformance):
    name = "node"

    @pytest.fixture
    def working(self, make: Make, controller: Controller) -> Probe:
        return make(controller.env())

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return NodeProbe({"BENCH_NODE_POWER": "redfish", "BENCH_REDFISH_URL": "http://127.0.0.1:9"})


def test_ipmi(make: Make, tmp_path: Path) -> None:
    probe = make(install_ipmitool(tmp_path / "bin", DCMI.format(watts=412, state="activated")))
    (device,) = probe.discover().devices
    assert (device.scope, device.quality) == ("node", "measured")
    assert device.power is not None
    assert device.power.api == "ipmitool dcmi power reading"
    assert probe.sample(UID).power_w == 412.0
    replace_text(tmp_path / "bin/answer", DCMI.format(watts=600, state="activated"))
    until(lambda: probe.sample(UID).power_w == 600.0)


def test_redfish_sums_its_chassis(make: Make, controller: Controller) -> None:
    probe = make(controller.env())
    assert probe.discover().devices[0].scope == "node"
    assert probe.sample(UID).power_w == 412.5


@pytest.mark.parametrize(("inside", "watts"), [({1: 0}, 403.0), ({2: 1, 1: 0}, 400.0), ({2: 1}, 412.5), ({0: 1, 1: 0}, None)])
def test_a_chassis_in_another_is_not_added_again(
    make: Make, controller: Controller, inside: dict[int, int], watts: float | None
) -> None:
    """The enclosure's power holds that of its trays. Two that are in each other make no sense, and no number."""
    controller.watts, controller.inside = [400, 12.5, 3], inside
    if watts is None:
        controller.watts = [400, 12.5]
    probe = make(controller.env())
    found = probe.discover()
    assert (probe.sample(UID).power_w if found.devices else None) == watts


@pytest.mark.parametrize(
    ("parts", "watts"),
    [([85, 20], 400.0), ([None, 20], 400.0), ([300, 200], None)],
)
def test_parts_of_a_chassis_are_not_added_to_it(
    make: Make, controller: Controller, parts: list[Any], watts: float | None
) -> None:
    """`Server Power Control` with `CPU Sub-system Power` and `Memory Sub-system Power` behind it, as Lenovo's XCC lists them."""
    controller.watts, controller.parts = [400], [{"PowerConsumedWatts": part} for part in parts]
    probe = make(controller.env())
    found = probe.discover()
    assert (probe.sample(UID).power_w if found.devices else None) == watts
    assert found.devices or "several power controls" in found.problems[0].problem


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (DCMI.format(watts=412, state="deactivated"), "deactivated"),
        (DCMI.format(watts=0, state="activated"), "implausible"),
        ("", "printed nothing"),
        ("Could not open device at /dev/ipmi0", "tells no power"),
    ],
)
def test_ipmi_without_power_is_a_problem(make: Make, tmp_path: Path, text: str, words: str) -> None:
    found = make(install_ipmitool(tmp_path / "bin", text)).discover()
    assert found.devices == ()
    assert words in found.problems[0].problem
    assert "ipmi_devintf" in found.problems[0].fix


def test_no_ipmitool_is_a_problem(make: Make, tmp_path: Path) -> None:
    (problem,) = make({"BENCH_NODE_POWER": "ipmi", "PATH": str(tmp_path)}).discover().problems
    assert "not installed" in problem.problem


def test_a_word_that_is_neither_is_refused(make: Make) -> None:
    (problem,) = make({"BENCH_NODE_POWER": "snmp"}).discover().problems
    assert "ipmi or redfish" in problem.fix


@pytest.mark.parametrize("missing", [None, "N/A", True])
def test_a_chassis_without_a_number_leaves_no_sum(make: Make, controller: Controller, missing: object) -> None:
    controller.watts[1] = missing
    (problem,) = make(controller.env()).discover().problems
    assert "PowerConsumedWatts" in problem.problem


def test_the_password_is_told_to_nobody(make: Make, controller: Controller, caplog: pytest.LogCaptureFixture) -> None:
    """Not when it works, not when it is refused, not when the controller is gone."""
    said = []
    for env in (
        controller.env(),
        controller.env(BENCH_REDFISH_USER="other"),
        controller.env(BENCH_REDFISH_URL="http://127.0.0.1:9"),
    ):
        found = make(env).discover()
        said.append(codec.encode(found).decode())
    controller.status = 500
    said.append(codec.encode(make(controller.env()).discover()).decode())
    assert "401" in said[1]
    assert "500" in said[3]
    for text in (*said, caplog.text):
        assert PASSWORD not in text
        assert base64.b64encode(f"admin:{PASSWORD}".encode()).decode() not in text


def test_a_link_to_another_place_is_not_followed(make: Make, controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would carry the password there."""
    monkeypatch.setattr(controller, "page", lambda path: {"Members": [{"@odata.id": "//evil.example/x"}]})
    (problem,) = make(controller.env()).discover().problems
    assert "another place" in problem.problem


@pytest.mark.parametrize("url", ["", "ftp://x", "http://"])
def test_what_is_no_url_is_refused(make: Make, url: str) -> None:
    (problem,) = make({"BENCH_NODE_POWER": "redfish", "BENCH_REDFISH_URL": url}).discover().problems
    assert "not a URL" in problem.problem


def test_a_controller_without_chassis() -> None:
    with pytest.raises(Unavailable, match="no chassis"):
        redfish_w([])
    with pytest.raises(Unavailable):
        dcmi_w("")
