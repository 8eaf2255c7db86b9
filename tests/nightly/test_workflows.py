"""The nightly workflows: clean, pinned, with few rights, and whole."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from bench import suite
from bench.lab.gate import JUDGED_NIGHTS
from bench.lab.matrix import Wishes, jobs_of, place_of
from tests.nightly.linters import linter
from tests.nightly.pipeline import ROOT, WORKFLOWS, filled, workflow

NAMES = sorted(path.stem for path in WORKFLOWS.glob("nightly-*.yml"))
CALLED = ["nightly-measure", "nightly-pipeline"]
CALLERS = [name for name in NAMES if name not in CALLED]


def jobs(name: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = workflow(name)["jobs"]
    return found


def steps(name: str) -> Iterator[dict[str, Any]]:
    for job in jobs(name).values():
        yield from job.get("steps", [])


def text(name: str) -> str:
    return (WORKFLOWS / f"{name}.yml").read_text(encoding="utf-8")


def test_a_caller_a_vendor_and_one_without_hardware() -> None:
    assert CALLERS == ["nightly-amd", "nightly-ascend", "nightly-hosted", "nightly-nvidia"]


def test_actionlint_finds_nothing() -> None:
    files = [str(WORKFLOWS / f"{name}.yml") for name in NAMES]
    done = subprocess.run([linter("actionlint"), "-no-color", *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_zizmor_finds_nothing() -> None:
    """Script injection, rights that are too wide, actions that move, credentials that stay."""
    files = [str(WORKFLOWS / f"{name}.yml") for name in NAMES]
    command = [linter("zizmor"), "--offline", "--no-progress", "--min-severity", "medium", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_actions_are_pinned_by_what_they_are(name: str) -> None:
    lines = [line for line in text(name).splitlines() if re.match(r"\s*(- )?uses: ", line)]
    assert lines
    for line in lines:
        assert re.search(r"uses: (\./\.github/workflows/[\w-]+\.yml|[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+)$", line), line


@pytest.mark.parametrize("name", NAMES)
def test_rights_are_few_and_secrets_none(name: str) -> None:
    assert workflow(name)["permissions"] == {}
    for job in jobs(name).values():
        assert job["permissions"].items() <= {"contents": "read", "actions": "read"}.items()
    assert "secrets" not in text(name)
    assert "pull_request" not in text(name)
    for step in steps(name):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"] == {"persist-credentials": False}


@pytest.mark.parametrize("name", NAMES)
def test_every_job_ends(name: str) -> None:
    assert all("timeout-minutes" in job for job in jobs(name).values() if "uses" not in job)


@pytest.mark.parametrize("name", CALLERS)
def test_callers_wait_for_themselves_and_run_in_no_fork(name: str) -> None:
    found = workflow(name)
    assert found["concurrency"] == {"group": name, "cancel-in-progress": False}
    assert "!github.event.repository.fork" in jobs(name)["nightly"]["if"]
    assert set(found["on"]) == {"schedule", "workflow_dispatch"}


def test_vendors_have_hours_of_their_own() -> None:
    crons = [workflow(name)["on"]["schedule"][0]["cron"] for name in CALLERS]
    assert len(set(crons)) == len(crons)
    assert all(0 < int(cron.split()[1]) < 12 for cron in crons)  # a night's trials are of one day of UTC


@pytest.mark.parametrize("name", CALLERS)
def test_a_callers_suite_is_one_and_makes_jobs(name: str) -> None:
    given = filled({k: v for k, v in jobs(name)["nightly"]["with"].items() if k in ("vendor", "suite")}, {})
    path = ROOT / given["suite"]
    vendor = given["vendor"] if given["vendor"] != "hosted" else "cpu"
    found = jobs_of(suite.load(str(path)), str(path), Wishes(places=(place_of(vendor),)))
    assert sum(len(job.cases.splitlines()) for job in found) == len(suite.load(str(path)).cases)


def test_a_failed_job_hinders_no_other_and_hands_over_what_it_has() -> None:
    job = jobs("nightly-measure")["measure"]
    assert job["strategy"]["fail-fast"] is False
    upload = job["steps"][-1]
    assert upload["if"] == "${{ always() }}"
    assert upload["with"]["if-no-files-found"] == "warn"
    pipeline = jobs("nightly-pipeline")
    assert "!cancelled()" in pipeline["judge"]["if"]
    assert "!cancelled()" in pipeline["report"]["if"]


def test_names_of_artifacts_are_of_one_job_and_attempt() -> None:
    uploads = [step["with"]["name"] for name in CALLED for step in steps(name) if "upload-artifact" in step.get("uses", "")]
    assert len(set(uploads)) == len(uploads) == 4
    measured = next(name for name in uploads if "prefix" in name)
    assert {"inputs.vendor", "matrix.id", "github.run_attempt"} <= set(re.findall(r"[\w.]+\.\w+", measured))
    assert all("inputs.vendor" in name for name in uploads)


def test_another_attempt_brings_back_what_its_job_handed_over_before() -> None:
    """Of all attempts, in the folder that it lay in, and what the judge then takes."""
    found = {step["uses"].partition("@")[0]: step for step in steps("nightly-measure") if "artifact" in step.get("uses", "")}
    handed, back = found["actions/upload-artifact"]["with"], found["actions/download-artifact"]["with"]
    assert back["pattern"] == handed["name"].replace("${{ github.run_attempt }}", "*")
    assert handed["path"].split() == [f"{back['path']}/shards", f"{back['path']}/runs"]
    taken = [line for step in steps("nightly-pipeline") for line in step.get("run", "").splitlines() if "compgen" in line]
    assert len(taken) == 2
    assert all("/shards/date=*" in line for line in taken)


@pytest.mark.parametrize("name", CALLED)
def test_what_a_person_can_name_reaches_the_shell_as_a_variable(name: str) -> None:
    assert not [step["run"] for step in steps(name) if "${{" in step.get("run", "")]


@pytest.mark.parametrize(("extras", "wanted"), [("", "."), ("nvidia", ".[nvidia]"), ("nvidia,llamacpp", ".[nvidia,llamacpp]")])
def test_hosts_get_what_they_need(extras: str, wanted: str) -> None:
    """`.[]` is no requirement."""
    script = next(step["run"] for step in steps("nightly-measure") if step.get("name") == "Install")
    (asked,) = re.findall(r"pip\" install --quiet (.*)", script)
    said = subprocess.run(["bash", "-c", f"echo {asked}"], env={"EXTRAS": extras}, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == wanted


def test_every_file_beside_the_suites_is_used() -> None:
    told = "".join(text(name) for name in NAMES)
    assert [path.name for path in (ROOT / ".github" / "nightly").iterdir() if path.name not in told] == []


def test_the_pipeline_keeps_all_nights_that_the_gate_judges_by() -> None:
    kept = re.findall(r"head -n -(\d+)", text("nightly-pipeline"))
    assert [int(nights) >= JUDGED_NIGHTS for nights in kept] == [True]
