"""The nightly workflows on this machine: their own `run:` steps, in their own order, with the artifacts in a folder.

    python -m tests.nightly.pipeline nightly-hosted /tmp/nights

Each call is one night; the folder keeps the history from one to the next. What GitHub does is done in its simplest form: jobs run
one after the other, the checkout is a link to this one, Python and `bench` are those that run this, artifacts are folders, and
`gh` is a program of ours that knows the newest history.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
_EXPRESSION = re.compile(r"\$\{\{((?:(?!\}\}).)*)\}\}", re.DOTALL)
_GH = """#!/usr/bin/env python3
import os, pathlib, re, shutil, sys
url = sys.argv[2]
if named := re.search(r"[?]name=([^&]*)", url):
    kept = pathlib.Path(os.environ["NIGHTS"], named[1])
    print(named[1] if kept.is_dir() else "")
else:
    kept = pathlib.Path(os.environ["NIGHTS"], url.split("/")[-2])
    packed = shutil.make_archive(str(pathlib.Path(os.environ["RUNNER_TEMP"], "packed")), "zip", kept)
    sys.stdout.buffer.write(pathlib.Path(packed).read_bytes())
"""


def workflow(name: str) -> dict[str, Any]:
    """A workflow file as data; `on`, which YAML takes for a truth value, under its own name."""
    found: dict[Any, Any] = yaml.safe_load((WORKFLOWS / f"{name}.yml").read_text(encoding="utf-8"))
    return {("on" if key is True else key): value for key, value in found.items()}


class _Dots(dict[str, Any]):
    """A context of expressions: what is not there is null."""

    def __getattr__(self, name: str) -> Any:
        return _dotted(self.get(name))

    def __getitem__(self, key: Any) -> Any:
        return self.__getattr__(key)


class _Items(list[Any]):
    def __getitem__(self, key: Any) -> Any:
        return _dotted(super().__getitem__(key)) if -len(self) <= key < len(self) else None


def _dotted(value: Any) -> Any:
    return _Dots(value) if isinstance(value, dict) else _Items(value) if isinstance(value, list) else value


def evaluate(expression: str, contexts: Mapping[str, Any]) -> Any:
    """A GitHub expression: of its language, what these workflows use."""
    python = re.sub(r"!(?!=)", " not ", expression.strip().replace("&&", " and ").replace("||", " or "))
    names = {name: _dotted(value) for name, value in contexts.items()}
    names |= {"fromJSON": lambda text: _dotted(json.loads(text)), "null": None, "true": True, "false": False}
    return eval(python, {"__builtins__": {}}, names)


def filled(value: Any, contexts: Mapping[str, Any]) -> Any:
    """A value of a workflow with every expression in it replaced; one that is an expression alone keeps its type."""
    if isinstance(value, dict):
        return {key: filled(one, contexts) for key, one in value.items()}
    if isinstance(value, list):
        return [filled(one, contexts) for one in value]
    if not isinstance(value, str):
        return value
    alone = _EXPRESSION.fullmatch(value.strip())
    if alone:
        return evaluate(alone[1], contexts)
    return _EXPRESSION.sub(lambda found: _text(evaluate(found[1], contexts)), value)


def _text(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@dataclass
class Step:
    """A step that was run: in which job, what it printed, its exit status."""

    job: str
    name: str
    code: int
    out: str


@dataclass
class Night:
    """What a night did. `results`: success, failure or skipped, by job. `artifacts`: where they lie. `attempt`: of all jobs."""

    folder: Path
    attempt: int = 1
    steps: list[Step] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def artifacts(self) -> Path:
        return self.folder / "artifacts"

    @property
    def summary(self) -> str:
        """What the job's page shows."""
        path = self.folder / "summary.md"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def said(self, job: str, name: str) -> str:
        """What a step printed."""
        return next(step.out for step in self.steps if (step.job, step.name) == (job, name))


@dataclass
class Driver:
    """Runs nights in `home`. `env` is added to that of every step, `inputs` to what the caller gives its pipeline."""

    home: Path
    env: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)

    def night(self, caller: str) -> Night:
        """One night of `caller`, such as `nightly-hosted`."""
        number = len(list(self.home.glob("night-*"))) + 1
        night = Night(folder=self.home / f"night-{number}")
        night.artifacts.mkdir(parents=True)
        tools = self.home / "tools"
        tools.mkdir(exist_ok=True)
        (tools / "gh").write_text(_GH)
        (tools / "gh").chmod(0o755)
        call = workflow(caller)["jobs"]["nightly"]
        self.call(night, call["uses"], {**call["with"], **self.inputs})
        for kept in night.artifacts.glob("history-*"):
            shutil.copytree(kept, self.home / "nights" / kept.name, dirs_exist_ok=True)
        return night

    def call(self, night: Night, uses: str, given: Mapping[str, Any], prefix: str = "") -> str:
        """Every job of a reusable workflow, as a part of `night`: success or failure."""
        called = workflow(Path(uses).stem)
        known = called["on"]["workflow_call"]["inputs"]
        assert set(given) <= set(known), f"{uses} has no input {set(given) - set(known)}"
        inputs = {name: given.get(name, what.get("default")) for name, what in known.items()}
        assert not [name for name, what in known.items() if what.get("required") and inputs[name] is None]
        results: dict[str, dict[str, Any]] = {}
        for name, job in called["jobs"].items():
            needed = [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
            contexts = {"inputs": inputs, "needs": {one: results[one] for one in needed}}
            contexts |= {"github": {"run_attempt": night.attempt, "token": "t"}}
            results[name] = self._job(night, called, name, job, contexts, prefix)
            night.results[prefix + name] = results[name]["result"]
        return "failure" if any(one["result"] == "failure" for one in results.values()) else "success"

    def _job(
        self, night: Night, called: dict[str, Any], name: str, job: dict[str, Any], contexts: dict[str, Any], prefix: str
    ) -> dict[str, Any]:
        may = {**contexts, "cancelled": lambda: False}
        fine = all(one["result"] == "success" for one in contexts["needs"].values())
        if not (evaluate(_EXPRESSION.sub(r"\1", job["if"]), may) if "if" in job else fine):
            return {"result": "skipped", "outputs": {}}
        if "uses" in job:
            return {"result": self.call(night, job["uses"], filled(job["with"], contexts), f"{prefix}{name}/"), "outputs": {}}
        every = filled(job["strategy"]["matrix"], contexts)["include"] if "strategy" in job else [{}]
        ends = []
        for one in every:
            whole = {**contexts, "matrix": dict(one)}
            label = prefix + (_text(filled(job["name"], whole)) if one else name)
            ends.append(self._steps(night, {**called.get("env", {}), **job.get("env", {})}, job, whole, label))
        outputs = filled(job.get("outputs", {}), {**contexts, "steps": ends[-1][1]})
        night.outputs[prefix + name] = outputs
        return {"result": "success" if all(fine for fine, _ in ends) else "failure", "outputs": outputs}

    def _steps(
        self, night: Night, env: Mapping[str, Any], job: dict[str, Any], contexts: dict[str, Any], label: str
    ) -> tuple[bool, dict[str, Any]]:
        work = night.folder / f"work-{night.attempt}" / label.replace("/", "-")
        (work / "temp").mkdir(parents=True)
        for name in (".github", "suites"):
            (work / name).symlink_to(ROOT / name)
        fine = True
        steps: dict[str, Any] = {}
        for step in job["steps"]:
            may = {**contexts, "success": lambda fine=fine: fine, "always": lambda: True, "cancelled": lambda: False}
            wanted = evaluate(_EXPRESSION.sub(r"\1", step["if"]), may) if "if" in step else fine
            if not wanted or step.get("name") == "Install":
                continue
            inner = {**contexts, "steps": steps}
            if "uses" in step:
                _artifacts(night.artifacts, step["uses"], filled(step.get("with", {}), inner), work)
                continue
            said, outputs = self._run(night, step, filled({**env, **step.get("env", {})}, inner), work)
            night.steps.append(Step(label, step["name"], said.returncode, said.stdout))
            fine = fine and said.returncode == 0
            steps[step.get("id", "")] = {"outputs": outputs}
        return fine, steps

    def _run(
        self, night: Night, step: dict[str, Any], env: Mapping[str, Any], work: Path
    ) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
        told = work / "temp" / "outputs"
        told.write_text("")
        path = os.pathsep.join([str(self.home / "tools"), str(Path(sys.executable).parent), os.environ["PATH"]])
        github = {"GITHUB_OUTPUT": str(told), "GITHUB_STEP_SUMMARY": str(night.folder / "summary.md")}
        github |= {"GITHUB_REPOSITORY": "a/b", "GITHUB_REF_NAME": "main", "RUNNER_TEMP": str(work / "temp")}
        github |= {"GITHUB_SHA": "c0ffee"}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=work,
            env={**os.environ, "PATH": path, "NIGHTS": str(self.home / "nights"), **github, **self.env}
            | {name: _text(value) for name, value in env.items()},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done, dict(line.split("=", 1) for line in told.read_text().splitlines())


def _artifacts(store: Path, uses: str, asked: dict[str, Any], work: Path) -> None:
    """What the actions for artifacts do; the others are nothing here."""
    action = uses.partition("@")[0]
    if action == "actions/upload-artifact":
        paths = [work / line for line in asked["path"].split()]
        root = paths[0] if len(paths) == 1 else Path(os.path.commonpath(paths))
        assert asked.get("overwrite") or not (store / asked["name"]).exists(), f"two artifacts are called {asked['name']}"
        for path in _files(paths):
            target = store / asked["name"] / (path.relative_to(root) if path != root else path.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
    elif action == "actions/download-artifact":
        wanted = asked["pattern"] if "pattern" in asked else asked["name"]
        names = [one.name for one in store.iterdir() if fnmatch.fnmatchcase(one.name, wanted)]
        assert names or "pattern" in asked, f"there is no artifact {asked['name']}"
        for name in names:
            shutil.copytree(store / name, work / asked["path"], dirs_exist_ok=True)


def _files(paths: list[Path]) -> Iterator[Path]:
    """Files at or below the paths, as the action takes them: without what is hidden."""
    for path in paths:
        if path.is_file():
            yield path
        yield from (
            one for one in path.rglob("*") if one.is_file() and not any(p.startswith(".") for p in one.relative_to(path).parts)
        )


if __name__ == "__main__":
    ran = Driver(home=Path(sys.argv[2])).night(sys.argv[1])
    for told in ran.steps:
        sys.stdout.write(f"== {told.job}: {told.name} (exit {told.code})\n{told.out}")
    sys.stdout.write(f"{ran.results}\n{ran.summary}")
    sys.exit(any(result == "failure" for result in ran.results.values()))
