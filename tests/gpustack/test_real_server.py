"""A real GPUStack server on a real PostgreSQL: it takes our progress and our reports, and tells results that we import."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from bench import mock
from bench.runners.process import free_port
from bench.testing.processes import eventually
from tests.conftest import BenchCommand
from tests.exchange.gpustack_venv import gpustack_python

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3600)]
NUMBER = 7
PASSWORD = "proof-Pass-1"
INSTANCE = {
    "id": 1,
    "name": "m-1",
    "backend": "vLLM",
    "backend_version": "0.11.0",
    "computed_resource_claim": None,
    "ports": None,
}
SNAPSHOT = {"instances": {"m-1": INSTANCE}}
ROW = f"""
INSERT INTO benchmarks (id, created_at, updated_at, name, cluster_id, model_name, model_instance_name, request_rate,
  total_requests, state, load_type, target_mode, dataset_name, dataset_input_tokens, dataset_output_tokens, gpu_summary, snapshot)
VALUES ({NUMBER}, now(), now(), 'two at once', 1, 'm', 'm-1', 2, 120, 'RUNNING', 'concurrency', 'model_instance', 'Random',
  16, 8, '1x Example GPU', '{json.dumps(SNAPSHOT)}')
"""
"""A benchmark that runs: to make one through the API takes a cluster with a worker and a deployed model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Postgres:
    """A database server in a folder. Its programs refuse to be root, and are then run as its own user."""

    programs: Path
    folder: Path
    port: int

    def run(self, name: str, *args: str) -> str:
        """One of its programs; what it printed."""
        user = "postgres" if os.geteuid() == 0 else None
        command = [str(self.programs / name), *args]
        return subprocess.run(command, user=user, cwd="/", stdout=subprocess.PIPE, text=True, check=True).stdout

    def sql(self, query: str, database: str = "gpustack") -> str:
        """What a query answers."""
        where = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-d", database)
        return self.run("psql", "-qAt", *where, "-c", query).strip()


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    """A PostgreSQL of its own, with an empty database `gpustack`."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not folders:
        pytest.skip("PostgreSQL is not installed")
    with tempfile.TemporaryDirectory(prefix="gpustack-proof-") as folder:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        data = Path(folder) / "data"
        postgres = Postgres(programs=folders[-1], folder=data, port=free_port())
        postgres.run("initdb", "-D", str(data), "-A", "trust", "-U", "postgres")
        options = f"-p {postgres.port} -k {data} -c listen_addresses=127.0.0.1"
        postgres.run("pg_ctl", "-D", str(data), "-o", options, "-l", str(data / "log"), "-w", "start")
        try:
            postgres.sql("CREATE DATABASE gpustack", "postgres")
            yield postgres
        finally:
            postgres.run("pg_ctl", "-D", str(data), "-m", "immediate", "stop")


@contextmanager
def started(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def server(database: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server without a worker and without its gateway."""
    folder, port = tmp_path_factory.mktemp("gpustack"), free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        *(str(gpustack_python().with_name("gpustack")), "start", "--disable-worker", "--gateway-mode", "disabled"),
        *("--database-url", f"postgresql://postgres@127.0.0.1:{database.port}/gpustack", "--data-dir", str(folder / "data")),
        *("--port", str(free_port()), "--api-port", str(port), "--advertise-address", "127.0.0.1"),
        *("--disable-builtin-observability", "--disable-metrics", "--disable-update-check", "--bootstrap-password", PASSWORD),
    ]

    def answers() -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{url}/v2/benchmarks").status_code == 401
        return False

    with started(command, folder / "log"):
        eventually(answers, lambda: (folder / "log").read_text()[-2000:], limit_s=300.0)
        yield url


@pytest.fixture(scope="module")
def key(server: str) -> str:
    """An API key that the server has made."""
    with httpx.Client(base_url=server) as client:
        client.post("/auth/login", data={"username": "admin", "password": PASSWORD}).raise_for_status()
        made = client.post("/v2/api-keys", json={"name": "bench"})
        value: str = made.raise_for_status().json()["value"]
        return value


def test_a_benchmark_of_our_runner_is_one_of_the_real_server(
    bench: BenchCommand, database: Postgres, server: str, key: str, tmp_path: Path
) -> None:
    database.sql(ROW)
    told = f"{server}/v2/benchmarks/{NUMBER}"
    with mock.start(ttft_ms=5, gap_ms=2, model="m") as engine:
        asked = f"--target {engine.url} --model m --profile concurrent --rate 2 --max-requests 120 --output-dir out"
        data, outputs = "prompt_tokens=16,output_tokens=8", f"{NUMBER}.dual_json"
        progress = ("--progress-url", f"{told}/state", "--progress-auth", key)
        run = ("gpustack", "runner", "benchmark", "run", *asked.split(), "--data", data, "--outputs", outputs, *progress)
        done = bench(*run)
    assert done.returncode == 0, done.stderr
    assert "progress" not in done.stderr  # no report of it was refused
    assert database.sql(f"SELECT progress FROM benchmarks WHERE id = {NUMBER}") == "100"

    report = tmp_path / "out" / f"{NUMBER}.json"
    script = Path(__file__).with_name("take_in.py")
    subprocess.run([str(gpustack_python()), str(script), server, key, str(NUMBER), str(report)], check=True)
    kept = httpx.get(told, headers={"Authorization": f"Bearer {key}"}).json()
    assert (kept["request_successful"], kept["request_errored"]) == (120, 0)
    ours = json.loads(report.read_text())["benchmarks"][0]["metrics"]
    assert kept["time_to_first_token_mean"] == pytest.approx(ours["time_to_first_token_ms"]["successful"]["mean"])

    imported = bench("gpustack", "import", server, "--json", GPUSTACK_API_KEY=key)
    assert imported.returncode == 0, imported.stderr
    (row,) = json.loads(
        bench("sql", "SELECT tool, model, engine, engine_version, device, batch_size FROM imported", "--json").stdout
    )
    assert list(row.values()) == ["gpustack", "m", "vLLM", "0.11.0", "1x Example GPU", 2]
    again = bench("gpustack", "import", server, GPUSTACK_API_KEY=key)
    assert "0 imported, 1 known already" in again.stderr
    refused = bench("gpustack", "import", server, GPUSTACK_API_KEY="gpustack_0_0")
    assert refused.returncode == 1
    assert "401: it refuses the key" in refused.stderr
