"""What every runner that launches an engine must do. A runner joins by saying how its engine is made to misbehave."""

from __future__ import annotations

import abc
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bench.errors import EngineStartError
from bench.ports import Engine, Runner, StartRequest
from bench.records import Case, LocalModel
from bench.runners import warden
from bench.runners.http import get
from bench.runners.launched import LaunchedEngine
from bench.runners.process import EngineProcess
from bench.testing.cases import request
from bench.testing.processes import all_gone, eventually, named_tree, tree


class LaunchingRunnerConformance(abc.ABC):
    """Tests that a subclass inherits. `case_for` arranges a start in which the engine behaves as named:

    `good`, `dies_at_start` (after a line of log), `never_ready`, `leaves_daemon`, `ignores_sigterm`, `floods` (over 10 MB log);
    `hangs_at_token` (a good health page, and never a token), `dies_at_token`, `refuses_token`, `port_taken_once`.
    """

    proves_token = True
    """False for a runner that does not wait for a first token."""
    chooses_port = True
    """False for an engine that chooses its port itself."""
    has_counters = True
    """False for an engine without any."""
    served_as = "tiny"
    """What the model is called in requests."""
    asked: StartRequest
    """What the last start was asked for."""

    @pytest.fixture
    def tree_name(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
        """The name that all processes of one test carry."""
        yield from named_tree(monkeypatch)

    @abc.abstractmethod
    def runner(self) -> Runner: ...

    @abc.abstractmethod
    def case_for(self, behaviour: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> Case: ...

    def model(self) -> LocalModel | None:
        """Weights, for runners that want some."""
        return None

    def start(self, behaviour: str, tmp_path: Path, patch: pytest.MonkeyPatch, timeout_s: float = 60.0) -> Engine:
        """A started engine."""
        case = self.case_for(behaviour, tmp_path, patch)
        env = {"SOME_VISIBLE_DEVICES": "1"}
        self.asked = request(tmp_path / "work", case, model=self.model(), timeout_s=timeout_s, env=env)
        return self.runner().start(self.asked)

    def check_foreseen(self, engine: Engine) -> None:
        """A runner that tells its command beforehand (`bench run --dry-run`) must then run that one, but for its ports."""
        launch_for = getattr(self.runner(), "launch_for", None)
        if launch_for is not None:
            foreseen = " ".join(launch_for(self.asked, 0).argv[1:])
            ran = " ".join(engine.handle.command)
            assert re.sub(r"\b\d+\b", "N", ran).endswith(re.sub(r"\b\d+\b", "N", foreseen))

    def test_a_ready_engine_is_described_and_stopped(
        self, tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with self.start("good", tmp_path, monkeypatch) as engine:
            handle, target = engine.handle, engine.target
            assert engine.failure() is None
            assert get(f"{target.base_url}/v1/models").__class__.__name__ == "Answer"
            assert target.base_url.startswith("http://127.0.0.1:")
            assert target.model == self.served_as
            assert handle.name == self.runner().name
            assert handle.version
            assert handle.command
            self.check_foreseen(engine)
            assert handle.start_s is not None
            assert handle.start_s > 0
            assert handle.env["SOME_VISIBLE_DEVICES"] == "1"
            if self.proves_token:
                assert handle.first_token_s is not None
                assert handle.first_token_s > 0
            assert [psutil.Process(pid).environ()["SOME_VISIBLE_DEVICES"] for pid in handle.pids] == ["1"]
            assert handle.log_path is not None
            assert Path(handle.log_path).is_file()
            assert ("generation_tokens_total" in engine.server_metrics()) == self.has_counters
        assert engine.failure() is not None
        assert not tree(tree_name)

    def test_an_exception_in_the_with_block_stops_it(
        self, tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with contextlib.suppress(KeyboardInterrupt), self.start("good", tmp_path, monkeypatch):
            raise KeyboardInterrupt
        assert not tree(tree_name)

    def test_what_fails_once_it_is_ready_stops_it(self, tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """As Ctrl-C does while what it runs is read back from it."""

        def interrupted(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(LaunchedEngine, "__init__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            self.start("good", tmp_path, monkeypatch)
        assert not tree(tree_name)

    def test_death_at_start_tells_the_log(self, tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(EngineStartError, match="before it was ready") as caught:
            self.start("dies_at_start", tmp_path, monkeypatch, timeout_s=600.0)
        assert "memory" in caught.value.log_tail
        assert caught.value.hint
        assert not tree(tree_name)

    def test_never_ready_is_given_up_on(self, tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(EngineStartError, match=r"was not ready after \d+\.\d s"):
            self.start("never_ready", tmp_path, monkeypatch, timeout_s=0.5)
        assert not tree(tree_name)

    @pytest.mark.parametrize(
        ("behaviour", "words"),
        [
            ("hangs_at_token", r"answers its health check but gave no token"),
            ("dies_at_token", r"ended with .*before it gave a first token"),
            ("refuses_token", r"is up but refuses /\S+: HTTP 400"),
        ],
    )
    def test_a_health_page_is_not_enough(
        self, tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch, behaviour: str, words: str
    ) -> None:
        if not self.proves_token:
            return
        timeout_s = 3.0 if behaviour == "hangs_at_token" else 60.0
        with pytest.raises(EngineStartError, match=words) as caught:
            self.start(behaviour, tmp_path, monkeypatch, timeout_s=timeout_s)
        assert caught.value.hint
        assert caught.value.log_path
        assert not tree(tree_name)

    def test_a_port_that_is_taken_meanwhile_costs_nothing(
        self, tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not self.chooses_port:
            return
        with self.start("port_taken_once", tmp_path, monkeypatch) as engine:
            assert engine.failure() is None
        assert (tmp_path / "taken").exists()
        assert not tree(tree_name)

    def test_death_in_mid_run_is_reported(self, tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with self.start("good", tmp_path, monkeypatch) as engine:
            psutil.Process(engine.handle.pids[0]).kill()
            eventually(lambda: engine.failure() is not None, "its death was not noticed")
            assert "SIGKILL" in str(engine.failure())
        assert "SIGKILL" in str(engine.failure())
        assert not tree(tree_name)

    def test_a_child_that_would_outlive_it_is_ended(
        self, tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(EngineProcess.stop, "__defaults__", (0.3,))  # the usual grace is too long for a test
        with self.start("leaves_daemon", tmp_path, monkeypatch):
            eventually(lambda: len(tree(tree_name)) >= 3, "warden, engine and daemon do not run")
        all_gone(tree_name)

    def test_ignoring_sigterm_does_not_help(self, tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(EngineProcess.stop, "__defaults__", (0.3,))  # the usual grace is too long for a test
        with self.start("ignores_sigterm", tmp_path, monkeypatch):
            pass
        assert not tree(tree_name)

    def test_a_flood_of_log_is_bounded(self, tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with self.start("floods", tmp_path, monkeypatch) as engine:
            assert engine.handle.log_path is not None
            log = Path(engine.handle.log_path)
            assert warden.HEAD_B < log.stat().st_size < warden.HEAD_B + 2 * warden.TAIL_B + 4096
            assert engine.log_tail(3)
        assert not tree(tree_name)
