"""Attach to an OpenAI-compatible endpoint that already runs: nothing is started, nothing is stopped."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from bench.clock import SYSTEM, Clock
from bench.errors import TargetError, UsageError
from bench.ports import StartRequest
from bench.precision import read_back
from bench.records import TOKEN_ID_PROTOCOLS, Case, EngineHandle, Scalar, Target, Window
from bench.runners.api_key import read_key
from bench.runners.arguments import check_arguments
from bench.runners.base_url import VERSIONED, api_base
from bench.runners.counters import MOCK_OWNER, read_metrics
from bench.runners.http import Answer, Kind, NoAnswer, get
from bench.runners.parallel import check_parallel
from bench.runners.served import ServedModel, served_models, slots_told, told

DEFAULT_KEY_ENV = "OPENAI_API_KEY"
_QUOTED_CHARS = 300
_ASK_LIMIT_S = 10.0
_LEAST_ASK_S = 0.1
_OPTIONAL_LIMIT_S = 10.0
"""For all the pages together that a server need not have [s]."""
_LOADING_POLL_S = 0.5
_NAMES_SHOWN = 8
_NAMES_COMPARED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Endpoint:
    """Where it is, and the *name* of the variable that holds its key: the key itself is read for each call and not kept."""

    api: str
    key_env: str | None

    @property
    def root(self) -> str:
        """Where the pages beside the API are (`/metrics`, `/version`)."""
        return VERSIONED.sub("", self.api)

    @property
    def shown(self) -> str:
        """Where it is, for a message."""
        return self.root.removesuffix(":")  # of a socket's URL, where the path would follow

    def headers(self) -> dict[str, str]:
        key = read_key(self.key_env)
        return {"Authorization": f"Bearer {key}"} if key else {}

    def ask(self, url: str, timeout_s: float) -> Answer | NoAnswer:
        return get(url, timeout_s=min(_ASK_LIMIT_S, max(timeout_s, _LEAST_ASK_S)), headers=self.headers())

    def quote(self, text: str | bytes) -> str:
        """The beginning of what a server says, for a message: it may repeat the key."""
        text = " ".join((text.decode("utf-8", "replace") if isinstance(text, bytes) else text).split())
        key = read_key(self.key_env)
        return (text.replace(key, "***") if key else text)[:_QUOTED_CHARS]


class AttachedEngine:
    """Fills `bench.ports.Engine` over an endpoint that is not ours. Its end shows in the outcomes of the requests."""

    def __init__(self, endpoint: _Endpoint, target: Target, handle: EngineHandle) -> None:
        self._endpoint = endpoint
        self._target = target
        self._handle = handle

    @property
    def target(self) -> Target:
        return self._target

    @property
    def handle(self) -> EngineHandle:
        return self._handle

    def failure(self) -> str | None:
        return None

    def log_tail(self, lines: int = 40) -> str:
        del lines
        return ""

    def server_metrics(self, window: Window | None = None) -> dict[str, float]:
        mock = self._handle.settings.get("served_by") == MOCK_OWNER
        return read_metrics(self._endpoint.root, window, mock=mock, headers=self._endpoint.headers())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None


class OpenAIRunner:
    """Checks that the endpoint is there, lets us in and serves the model; then hands it over as it is."""

    name = "openai"
    reads = ()

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock

    def check(self, case: Case) -> None:
        check_arguments(self.name, case.engine_args, {})
        check_parallel(self.name, case, (), instead="an endpoint that runs is spread over its devices already")
        api_base(case.base_url)
        key = read_key(case.api_key_env or DEFAULT_KEY_ENV)
        if case.api_key_env is not None and key is None:
            raise UsageError(
                f"the variable {case.api_key_env}, which should hold the API key, is not set",
                hint=f"export {case.api_key_env}=..., or name another one with --api-key-env",
            )

    def about(self, case: Case) -> str:
        return "part of tokjoule: give the address of a running endpoint with --base-url"

    def start(self, request: StartRequest) -> AttachedEngine:
        case = request.case
        self.check(case)
        key_env = case.api_key_env or (DEFAULT_KEY_ENV if read_key(DEFAULT_KEY_ENV) else None)
        endpoint = _Endpoint(api=api_base(case.base_url), key_env=key_env)
        began_ns = self._clock.monotonic_ns()
        end_ns = began_ns + round(request.start_timeout_s * 1e9)
        answer = self._loaded(endpoint, end_ns)
        served, settings = _served(endpoint, case, answer)
        version, build, more = self._about(endpoint, end_ns)
        handle = EngineHandle(
            name=self.name,
            version=version,
            build=build,
            command=(),
            env={},
            pids=(),
            settings=settings | more,
            precision=read_back(case.precision, served.weights_type) if served else None,
            start_s=(self._clock.monotonic_ns() - began_ns) / 1e9,
            log_path=None,
        )
        vocab_size = served.vocab_size if served else None
        target = Target(
            base_url=endpoint.api,
            protocol=case.protocol,
            model=case.model,
            api_key_env=key_env,
            token_ids=case.protocol in TOKEN_ID_PROTOCOLS and vocab_size is not None,
            vocab_size=vocab_size,
        )
        return AttachedEngine(endpoint, target, handle)

    def _left_s(self, end_ns: int) -> float:
        return (end_ns - self._clock.monotonic_ns()) / 1e9

    def _loaded(self, endpoint: _Endpoint, end_ns: int) -> Answer | NoAnswer:
        """The model list; waits while the server says that it is still loading (503)."""
        while True:
            answer = endpoint.ask(f"{endpoint.api}/models", self._left_s(end_ns))
            loading = isinstance(answer, Answer) and answer.status == 503
            if not loading or self._left_s(end_ns) <= 0:
                return answer
            self._clock.sleep(_LOADING_POLL_S)

    def _about(self, endpoint: _Endpoint, end_ns: int) -> tuple[str | None, str | None, dict[str, Scalar]]:
        """Version, build and settings where the server tells them in time: `/version` (vLLM), `/props` (llama.cpp)."""
        end_ns = min(end_ns, self._clock.monotonic_ns() + round(_OPTIONAL_LIMIT_S * 1e9))
        about = self._object(endpoint, "/version", end_ns)
        props = self._object(endpoint, "/props", end_ns)
        return told(about.get("version")), told(props.get("build_info")), slots_told(props)

    def _object(self, endpoint: _Endpoint, path: str, end_ns: int) -> dict[str, Any]:
        left_s = self._left_s(end_ns)
        answer = endpoint.ask(endpoint.root + path, left_s) if left_s > 0 else None
        return answer.json_object() if isinstance(answer, Answer) else {}


def _served(endpoint: _Endpoint, case: Case, answer: Answer | NoAnswer) -> tuple[ServedModel | None, dict[str, Scalar]]:
    """The entry of the case's model, and its settings. Raises: TargetError in plain words for everything else."""
    if isinstance(answer, NoAnswer):
        raise _unreachable(endpoint, answer)
    if answer.status in (404, 405):
        return None, {"model_list": f"none (HTTP {answer.status})"}
    if answer.status != 200:
        raise _refused(endpoint, answer)
    models = served_models(answer.json())
    if models is None:
        raise TargetError(
            f"{endpoint.api}/models is not an OpenAI model list: {endpoint.quote(answer.body) or 'an empty answer'}",
            hint="is this the URL of an OpenAI-compatible server?",
        )
    found = next((model for model in models if case.model in (model.name, *model.aliases)), None)
    if found is None:
        raise _not_served(endpoint, case.model, [model.name for model in models])
    return found, found.settings()


def _unreachable(endpoint: _Endpoint, failure: NoAnswer) -> TargetError:
    root, detail = endpoint.shown, endpoint.quote(failure.detail)
    if failure.proxy is not None:
        return TargetError(
            f"{root} can't be reached through the proxy {failure.proxy}: {detail}",
            hint="correct http_proxy or https_proxy, or add the host to no_proxy to reach it directly",
        )
    said: dict[Kind, tuple[str, str]] = {
        "missing": (f"there is no socket at {root}", "start the server, or correct --base-url"),
        "denied": (f"the system refuses a connection to {root}: {detail}", "run it as a user who may connect there"),
        "refused": (f"nothing listens at {root}", "start the server, or correct --base-url"),
        "timeout": (f"{root} gave {detail}", "is the server hung, or a firewall between?"),
        "dns": (f"the host name {urlsplit(root).hostname!r} is not known ({detail})", "correct --base-url"),
        "tls": (
            f"no secure connection to {root}: {detail}",
            "use http:// if the server has no TLS; for a private certificate set SSL_CERT_FILE",
        ),
        "broken": (
            f"{root} broke the connection: {detail}",
            "is it an HTTP server? An https server needs https:// in --base-url",
        ),
    }
    message, hint = said[failure.kind]
    return TargetError(message, hint=hint)


def _refused(endpoint: _Endpoint, answer: Answer) -> TargetError:
    where = f"{endpoint.api}/models"
    if answer.status in (401, 403):
        if endpoint.headers():
            return TargetError(
                f"{where} answers {answer.status}: it does not accept the API key in {endpoint.key_env}",
                hint=f"put a valid key into {endpoint.key_env}, or name another variable with --api-key-env",
            )
        return TargetError(
            f"{where} answers {answer.status}: it wants an API key, and none is set",
            hint=f"export {endpoint.key_env or DEFAULT_KEY_ENV}=..., or name another variable with --api-key-env",
        )
    if 300 <= answer.status < 400:
        return TargetError(
            f"{where} redirects to {endpoint.quote(answer.location or 'nowhere')}", hint="give that address as --base-url"
        )
    if answer.status == 503:
        return TargetError(
            f"{where} still answers 503 (loading): {endpoint.quote(answer.body)}", hint="wait until the server is ready"
        )
    return TargetError(f"{where} answers HTTP {answer.status}: {endpoint.quote(answer.body)}", hint="look at the server's log")


def _not_served(endpoint: _Endpoint, model: str, names: list[str]) -> TargetError:
    near = get_close_matches(model, names[:_NAMES_COMPARED], n=1, cutoff=0.4)
    did_you_mean = f" Did you mean {near[0][:_QUOTED_CHARS]!r}?" if near else ""
    more = f", and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    shown = ", ".join(endpoint.quote(name) for name in names[:_NAMES_SHOWN]) + more
    return TargetError(
        f"{endpoint.shown} does not serve {model!r}.{did_you_mean}", hint=f"it serves: {shown or 'no model at all'}"
    )
