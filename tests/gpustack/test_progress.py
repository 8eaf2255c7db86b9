"""Progress to a GPUStack server: what is sent and when, and that no fault of the server's reaches the benchmark."""

from __future__ import annotations

import ssl
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from bench.clock import FakeClock
from bench.errors import UsageError
from bench.lab.gpustack.progress import ProgressReporter, ReportingObserver
from bench.ports import Observer
from bench.records import LoadProgress, TrialRecord
from tests.factories import make_record
from tests.gpustack.servers import GpuStack
from tests.load.test_wire import make_certificate

TOKEN = "worker-token"


def reporter(url: str, warnings: list[str], **over: Any) -> ProgressReporter:
    return ProgressReporter(url, TOKEN, warn=warnings.append, **over)


def told(stack: GpuStack) -> list[float]:
    return [patch.body["progress"] for patch in stack.patches]


def test_a_report_is_a_patch_with_the_token_and_the_progress_alone() -> None:
    warnings: list[str] = []
    with GpuStack() as stack:
        with reporter(stack.state_url, warnings) as sent:
            sent.tell(42.5)
        [patch] = stack.patches
    assert (patch.path, patch.authorization, patch.body) == ("/v2/benchmarks/7/state", f"Bearer {TOKEN}", {"progress": 42.5})
    assert warnings == []


def test_reports_go_out_each_second_or_each_two_points_and_never_backwards() -> None:
    clock = FakeClock()
    with GpuStack() as stack:
        with reporter(stack.state_url, [], clock=clock) as sent:
            for seconds, percent in ((0, 0.0), (0.5, 1.0), (0.6, 1.5), (0, 3.6), (1.1, 3.7), (5, 3.0), (0.1, 100.0), (0, 100.0)):
                clock.advance(seconds)
                stack.arrived.clear()
                before = len(stack.patches)
                sent.tell(percent)
                if percent in (0.0, 1.5, 3.6, 3.7, 100.0):
                    assert stack.arrived.wait(10), f"{percent} did not go out"
                else:
                    assert len(stack.patches) == before
        assert told(stack) == [0.0, 1.5, 3.6, 3.7, 100.0, 100.0]


def test_the_measurement_never_waits_and_the_last_report_still_goes_out() -> None:
    hold, clock = threading.Event(), FakeClock()
    with GpuStack(hold=hold) as stack:
        with reporter(stack.state_url, [], clock=clock) as sent:
            sent.tell(0.0)
            assert stack.arrived.wait(10)
            for percent in range(10, 100, 10):  # the server has answered nothing yet
                clock.advance(2)
                sent.tell(float(percent))
            sent.tell(100.0)
            hold.set()
        assert told(stack) == [0.0, 100.0]


@pytest.mark.parametrize(
    ("stack", "why"),
    [
        (GpuStack(status=500), "500"),
        (GpuStack(status=401), "401"),
        (GpuStack(status=307, location="http://localhost:1/elsewhere"), "307"),
        (None, "refused"),
    ],
)
def test_a_failed_report_is_one_warning_that_does_not_show_the_token(stack: GpuStack | None, why: str) -> None:
    warnings: list[str] = []
    clock = FakeClock()

    def three_reports(url: str) -> None:
        with reporter(url, warnings, clock=clock) as sent:
            for percent in (0.0, 50.0, 100.0):
                sent.tell(percent)
                clock.advance(2)

    if stack is None:
        three_reports("http://localhost:1/v2/benchmarks/7/state")
    else:
        with stack:
            three_reports(stack.state_url)
        assert {patch.path for patch in stack.patches} == {"/v2/benchmarks/7/state"}
    [warning] = warnings
    assert why in warning
    assert "goes on" in warning
    assert TOKEN not in warning


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls"), "localhost")


@pytest.mark.parametrize(
    ("options", "arrives"),
    [
        ({}, False),
        ({"ca_cert": True}, True),
        ({"insecure": True}, True),
        ({"insecure": True, "ca_cert": True}, True),
    ],
)
def test_an_https_server_is_verified_unless_told_otherwise(certificate: Path, options: dict[str, bool], arrives: bool) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    warnings: list[str] = []
    given = {"ca_cert": str(certificate) if options.get("ca_cert") else None, "insecure": options.get("insecure", False)}
    with GpuStack(tls=context) as stack, reporter(stack.state_url, warnings, **given) as sent:
        sent.tell(100.0)
    assert (told(stack) == [100.0]) is arrives
    assert bool(warnings) is not arrives
    if not arrives:
        assert "certificate" in warnings[0].lower()


def test_authorities_that_cannot_be_read_and_other_urls_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--progress-ca-cert"):
        reporter("https://server/state", [], ca_cert=str(tmp_path / "none.pem"))
    with pytest.raises(UsageError, match="--progress-url"):
        reporter("file:///etc/passwd", [])


class _Terminal:
    """Takes everything."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def glance(phase: Any, elapsed_s: float = 0.0, completed: int = 0) -> LoadProgress:
    return LoadProgress(phase=phase, elapsed_s=elapsed_s, in_flight=1, completed=completed, failed=0, chunks_per_s=1.0)


def test_progress_is_the_share_of_all_trials_and_is_not_done_before_the_reports_are() -> None:
    said: list[float] = []
    kept: list[TrialRecord] = []
    seen = ReportingObserver(cast("Observer", _Terminal()), 2, said.append, kept.append)
    seen.load(glance("warmup", 1.0), None, 9.0)
    seen.load(glance("measure", 5.0), None, 5.0)
    seen.load(glance("drain", 12.0), None, None)
    record = make_record()
    seen.trial_done(record)
    seen.expected = 10  # the second one ends by number
    seen.load(glance("measure", 1.0, completed=4), None, None)
    seen.load(glance("measure", 2.0, completed=10), None, None)
    seen.trial_done(record)
    assert said == [0.0, 25.0, 50.0, 50.0, 70.0, 99.0, 99.0]
    assert kept == [record, record]
