"""Power of the whole machine from its management controller: `ipmitool dcmi power reading`, or Redfish. Once a second.

BENCH_NODE_POWER says which: `ipmi`, or `redfish` with BENCH_REDFISH_URL, BENCH_REDFISH_USER, BENCH_REDFISH_PASSWORD and, for a
certificate of one's own, BENCH_REDFISH_CA. User and password are read from the environment when a request is sent; neither
appears in a message, a result or a log.

Source: DCMI 1.5, "Get Power Reading"; Redfish DSP0268, `Power` (`PowerControl[].PowerConsumedWatts`) of each `Chassis`.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from bench.clock import SYSTEM, Clock
from bench.errors import ProbeError
from bench.ports import Discovery
from bench.probes.background import Poller
from bench.probes.command import output
from bench.probes.values import Unavailable, attempt, believable_w
from bench.records import DeviceInfo, ProbeProblem, Reading, SensorInfo

NAME = "node"
UID = "node:0"
PERIOD_S = 1.0
FIRST_READING_S = 5.0
HIGHEST_W = 50_000.0
_TIMEOUT_S = 5.0
_MOST_B = 1 << 20
_INSTANT = re.compile(r"Instantaneous power reading\s*:\s*(\d+(?:\.\d+)?)\s*Watts", re.IGNORECASE)
_STATE = re.compile(r"Power reading state is\s*:\s*(\S+)", re.IGNORECASE)
_FIXES = {
    "ipmi": "run `ipmitool dcmi power reading` by hand: it needs ipmitool, the module ipmi_devintf, and root or group ipmi",
    "redfish": "check BENCH_REDFISH_URL (https://CONTROLLER) and the account in BENCH_REDFISH_USER and BENCH_REDFISH_PASSWORD",
}


def dcmi_w(text: str) -> float:
    """Watts in the output of `ipmitool dcmi power reading`. Raises: Unavailable."""
    found, state = _INSTANT.search(text), _STATE.search(text)
    if found is None:
        raise Unavailable(f"ipmitool tells no power: {' '.join(text.split())[:80]!r}", lasting=False)
    if state is not None and state[1].lower() != "activated":
        raise Unavailable(f"the controller's power reading is {state[1]}", lasting=False)
    return believable_w(float(found[1]), None, HIGHEST_W)


def redfish_w(chassis: Iterable[Mapping[str, Any]]) -> float:
    """Watts in the `Power` resources of chassis that are not in each other, summed. Raises: Unavailable where none tells, or one
    does not.
    """
    controls = [controls for power in chassis if isinstance(controls := power.get("PowerControl"), list) and controls]
    if not controls:
        raise Unavailable("no chassis has a PowerControl", lasting=True)
    return believable_w(sum(map(_whole_w, controls)), None, HIGHEST_W)


def _whole_w(controls: Sequence[object]) -> float:
    """The first of a chassis' controls is the whole; controllers list its CPUs and memory after it, which are parts of it."""
    first, *parts = map(_told_w, controls)
    if first is None:
        raise Unavailable("a chassis does not tell its PowerConsumedWatts: the sum would lack it", lasting=False)
    if (others := sum(part or 0.0 for part in parts)) > first:
        raise Unavailable(
            f"a chassis has several power controls, and {first:g} W is less than the others' {others:g} W", lasting=False
        )
    return first


def _told_w(control: object) -> float | None:
    told = control.get("PowerConsumedWatts") if isinstance(control, dict) else None
    return None if isinstance(told, bool) or not isinstance(told, int | float) else float(told)


class Redfish:
    """A management controller's pages."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env

    def watts(self) -> float:
        """Raises: Unavailable."""
        members = self._get("/redfish/v1/Chassis").get("Members")
        paths = [member.get("@odata.id") for member in members if isinstance(member, dict)] if isinstance(members, list) else []
        chassis = {str(path): self._get(str(path)) for path in paths}
        powers = {path: self._get(link) for path, page in chassis.items() if (link := _link(page, "Power")) is not None}
        telling = {path for path, power in powers.items() if power.get("PowerControl")}
        return redfish_w(power for path, power in powers.items() if not _above(path, chassis) & telling)

    def _get(self, path: str) -> Mapping[str, Any]:
        place = urlsplit(self._env.get("BENCH_REDFISH_URL", ""))
        if place.scheme not in ("http", "https") or not place.hostname:
            raise Unavailable("BENCH_REDFISH_URL is not a URL", lasting=True)
        if not path.startswith("/") or path.startswith("//"):
            raise Unavailable("the controller links to another place", lasting=False)
        connection = self._connection(place.scheme, place.hostname, place.port)
        try:
            connection.request("GET", path, headers=self._headers())
            answer = connection.getresponse()
            body = answer.read(_MOST_B)
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"the controller does not answer: {type(error).__name__}", lasting=False) from error
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise Unavailable(f"the controller answers {answer.status} to {path}", lasting=answer.status in (401, 403))
        try:
            found = json.loads(body)
        except ValueError:
            raise Unavailable(f"{path} is not JSON", lasting=False) from None
        return found if isinstance(found, dict) else {}

    def _connection(self, scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
        if scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
        context = ssl.create_default_context(cafile=self._env.get("BENCH_REDFISH_CA") or None)
        return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=context)

    def _headers(self) -> dict[str, str]:
        user, password = self._env.get("BENCH_REDFISH_USER"), self._env.get("BENCH_REDFISH_PASSWORD")
        if not user or password is None:
            return {"Accept": "application/json"}
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        return {"Accept": "application/json", "Authorization": f"Basic {token}"}


def _link(page: Mapping[str, Any], name: str) -> str | None:
    """Where a page's link of this name leads."""
    to = page.get(name)
    place = to.get("@odata.id") if isinstance(to, dict) else None
    return place if isinstance(place, str) else None


def _above(path: str, chassis: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The chassis that one is in, and those that these are in: their power holds its."""
    found: set[str] = set()
    while path in chassis:
        links = chassis[path].get("Links")
        path = (_link(links, "ContainedBy") if isinstance(links, dict) else None) or ""
        if path in found:
            break
        found.add(path)
    return found


class NodeProbe:
    """One device: the machine."""

    name = NAME

    def __init__(self, env: Mapping[str, str] | None = None, clock: Clock = SYSTEM) -> None:
        self._env = os.environ if env is None else env
        self._clock = clock
        self._poller: Poller[float] | None = None

    def discover(self) -> Discovery:
        self.close()
        kind = self._env.get("BENCH_NODE_POWER", "").strip().lower()
        if not kind:
            return Discovery()
        if kind not in _FIXES:
            problem = ProbeProblem(
                probe=NAME, subject=UID, problem=f"BENCH_NODE_POWER is {kind!r}", fix="set it to ipmi or redfish"
            )
            return Discovery(problems=(problem,))
        read = Redfish(self._env).watts if kind == "redfish" else self._ipmi_w
        self._poller = Poller(NAME, read, PERIOD_S, self._clock)
        try:
            self._poller.first(FIRST_READING_S)
        except Unavailable as error:
            self.close()
            return Discovery(problems=(ProbeProblem(probe=NAME, subject=UID, problem=str(error), fix=_FIXES[kind]),))
        api = "Redfish Chassis/*/Power PowerConsumedWatts" if kind == "redfish" else "ipmitool dcmi power reading"
        info = DeviceInfo(
            uid=UID,
            probe=NAME,
            vendor="bmc",
            name=f"the whole machine ({kind})",
            index=0,
            scope="node",
            board=UID,
            power=SensorInfo(api=api, unit="W"),
        )
        return Discovery(devices=(info,))

    def watch(self, pids: Iterable[int]) -> Discovery:
        return Discovery()

    def sample(self, uid: str) -> Reading:
        if uid != UID or self._poller is None:
            raise ProbeError(f"the node probe has no device {uid!r}")
        taken = attempt(self._poller.latest)[0]
        if taken is None:
            now_ns = self._clock.monotonic_ns()
            return Reading(uid=UID, before_ns=now_ns, after_ns=now_ns)
        return Reading(uid=UID, before_ns=taken.before_ns, after_ns=taken.after_ns, power_w=taken.value)

    def close(self) -> None:
        if self._poller is not None:
            self._poller.close()
            self._poller = None

    def _ipmi_w(self) -> float:
        return dcmi_w(output(["ipmitool", "dcmi", "power", "reading"], env=dict(self._env)))
