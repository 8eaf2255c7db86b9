"""HTTP GET with the standard library: JSON, and files that resume. Credentials go to the site asked and nowhere else."""

from __future__ import annotations

import http.client
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from email.message import Message
from io import FileIO
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import msgspec

from bench import __version__
from bench.clock import Clock
from bench.errors import ModelError
from bench.models.cache import disk_error, read_record, write_record
from bench.units import format_bytes

_BLOCK_B = 1 << 20
_MAX_JSON_B = 64 << 20
_TIMEOUT_S = 30.0
_ATTEMPTS = 5
_SECRET_HEADERS = ("authorization", "cookie")
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class StatusError(Exception):
    """An answer other than success. `code` is the hub's own word for it, where it gives one."""

    def __init__(self, status: int, code: str | None = None) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.code = code


class _BrokenError(Exception):
    """Something that may go better at the next try. `never_reached`: no connection was made at all."""

    def __init__(self, why: str, *, never_reached: bool = False) -> None:
        super().__init__(why)
        self.never_reached = never_reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One file to fetch. `token` names its content: a part left by an earlier try is resumed only if it had the same one."""

    what: str
    url: str
    size_b: int | None
    token: str
    pinned: bool
    """The token is a hash of the content, so that a part can be continued even without an ETag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartState:
    token: str
    etag: str | None = None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects over HTTP(S) only, never from https to http, and takes no credentials to another site."""

    def redirect_request(  # noqa: PLR0917  (the signature of the standard library)
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        new, old = urlsplit(newurl), urlsplit(req.full_url)
        if new.scheme not in ("http", "https") or (old.scheme == "https" and new.scheme != "https"):
            raise urllib.error.URLError(f"{old.hostname} redirects to {new.scheme}://, which is refused")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]  # typeshed wants HTTPMessage
        if request is not None and (new.scheme, new.netloc) != (old.scheme, old.netloc):
            for name in [n for n in request.headers if n.lower() in _SECRET_HEADERS]:
                del request.headers[name]
        return request


class HttpClient:
    """Fetches from one site. `headers` may hold credentials."""

    def __init__(self, headers: Mapping[str, str], clock: Clock, timeout_s: float = _TIMEOUT_S) -> None:
        self._headers = {"User-Agent": f"tokjoule/{__version__}", "Accept-Encoding": "identity", **headers}
        self._clock = clock
        self._timeout_s = timeout_s
        self._opener = urllib.request.OpenerDirector()  # build_opener would add file:, ftp: and data:
        for handler in (
            urllib.request.ProxyHandler(),
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            _Redirects(),
        ):
            self._opener.add_handler(handler)

    def get_json(self, url: str) -> Any:
        """The JSON at `url`. Raises: StatusError, ModelError (no network, not JSON)."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with closing(self._open(url, {})) as answer:
                    return _json(_read(answer, _MAX_JSON_B), url)
            except _BrokenError as error:
                if error.never_reached or attempt == _ATTEMPTS:
                    raise unreachable(url, error) from error
                self._clock.sleep(0.5 * 2**attempt)
        raise AssertionError("unreachable")

    def download(self, job: Job, part: Path, on_bytes: Callable[[int], None]) -> None:
        """Fetch `job` into `part`, going on from what is there, until it is complete.

        Raises: StatusError, ModelError (no network, disk full, other size than announced). `part` is kept then.
        """
        failures = 0
        while not _complete(job, part):
            had_b = _size_b(part)
            try:
                self._attempt(job, part, on_bytes)
            except _BrokenError as error:
                failures = 1 if _size_b(part) > had_b else failures + 1
                if failures >= _ATTEMPTS:
                    raise _gave_up(job, part, error) from error
                self._clock.sleep(0.5 * 2**failures)
            else:
                return

    def _attempt(self, job: Job, part: Path, on_bytes: Callable[[int], None]) -> None:
        start_b, headers = _resume_point(job, part)
        try:
            answer = self._open(job.url, headers)
        except StatusError as error:
            if error.status == 416:  # the part is not a beginning of what is offered now
                part.unlink(missing_ok=True)
                raise _BrokenError("the server refused to resume") from error
            raise
        with closing(answer):
            start_b, total_b = _offered(job, part, answer, start_b)
            if start_b == 0:
                part.unlink(missing_ok=True)
                write_record(_state_path(part), _PartState(token=job.token, etag=answer.headers.get("ETag")))
            done_b = _copy(answer, part, start_b, total_b, on_bytes)
        if total_b is not None and done_b < total_b:
            raise _BrokenError(f"the answer ended after {format_bytes(done_b)} of {format_bytes(total_b)}")

    def _open(self, url: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ModelError(f"{url!r} is not an http(s) address", hint="check HF_ENDPOINT")
        request = urllib.request.Request(url, headers={**self._headers, **headers})  # noqa: S310  (scheme checked above)
        try:
            answer: http.client.HTTPResponse | None = self._opener.open(request, timeout=self._timeout_s)
        except urllib.error.HTTPError as error:
            with error:
                if error.code in (408, 429) or error.code >= 500:
                    raise _BrokenError(f"HTTP {error.code}") from error
                raise StatusError(error.code, error.headers.get("X-Error-Code")) from error
        except urllib.error.URLError as error:
            raise _BrokenError(_reason(error.reason), never_reached=not isinstance(error.reason, TimeoutError)) from error
        except (OSError, http.client.HTTPException) as error:
            raise _BrokenError(_reason(error)) from error
        assert answer is not None
        return answer


def unreachable(url: str, error: Exception) -> ModelError:
    """No network, in words: the host and not the whole address, which may hold a signature."""
    return ModelError(
        f"can't reach {urlsplit(url).hostname}: {error}",
        hint="check the network and HTTPS_PROXY; HF_ENDPOINT names a mirror; models already in the cache need no network",
    )


def _gave_up(job: Job, part: Path, error: _BrokenError) -> ModelError:
    if error.never_reached:
        return unreachable(job.url, error)
    of = f" of {format_bytes(job.size_b)}" if job.size_b is not None else ""
    return ModelError(
        f"{job.what}: the download broke off at {format_bytes(_size_b(part))}{of}: {error}",
        hint="run the same command again: it goes on from there",
    )


def _reason(error: object) -> str:
    if isinstance(error, ssl.SSLError):
        return f"{error.reason or error} (behind an inspecting proxy, set SSL_CERT_FILE)"
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _state_path(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def discard(part: Path) -> None:
    """Remove a part and what is known of it."""
    part.unlink(missing_ok=True)
    _state_path(part).unlink(missing_ok=True)


def forget(part: Path) -> None:
    """Remove what is known of a part that has become a file."""
    _state_path(part).unlink(missing_ok=True)


def _size_b(part: Path) -> int:
    try:
        return part.stat().st_size
    except OSError:
        return 0


def _complete(job: Job, part: Path) -> bool:
    if job.size_b is None or _size_b(part) != job.size_b or not part.is_file():
        return False
    state, _ = read_record(_state_path(part), _PartState)
    return job.pinned and state is not None and state.token == job.token


def _resume_point(job: Job, part: Path) -> tuple[int, dict[str, str]]:
    """Where to go on, and the headers that ask for it: `If-Range` makes a changed file start again from 0."""
    size_b = _size_b(part)
    state, _ = read_record(_state_path(part), _PartState)
    too_long = job.size_b is not None and size_b >= job.size_b
    if size_b == 0 or state is None or state.token != job.token or too_long:
        return 0, {}
    strong = state.etag if state.etag and not state.etag.startswith("W/") else None
    if strong is None and not job.pinned:
        return 0, {}
    return size_b, {"Range": f"bytes={size_b}-", **({"If-Range": strong} if strong else {})}


def _offered(job: Job, part: Path, answer: http.client.HTTPResponse, asked_b: int) -> tuple[int, int | None]:
    """First byte and whole size of what the server sends.

    Raises: ModelError if the size is not the announced one.
    """
    start_b, total_b = 0, None
    if answer.status == 206:
        found = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        if found is None or int(found[1]) != asked_b:
            part.unlink(missing_ok=True)
            raise _BrokenError("the server sent another range than asked")
        start_b, total_b = asked_b, None if found[2] == "*" else int(found[2])
    elif answer.headers.get("Content-Length", "").isdigit():
        total_b = int(answer.headers["Content-Length"])
    if job.size_b is not None and total_b is not None and total_b != job.size_b:
        raise ModelError(
            f"{job.what}: the server offers {total_b} bytes where the list of files says {job.size_b}",
            hint="the repository may just be changing: try again, or name a commit as the revision",
        )
    return start_b, job.size_b if total_b is None else total_b


def _copy(
    answer: http.client.HTTPResponse, part: Path, start_b: int, total_b: int | None, on_bytes: Callable[[int], None]
) -> int:
    """Append the body to `part`; returns the size it has then."""
    done_b = start_b
    try:
        with part.open("ab" if start_b else "wb", buffering=0) as file:
            while block := _read_block(answer):
                done_b += len(block)
                if total_b is not None and done_b > total_b:
                    raise ModelError(
                        f"{part.name}: the server sends more than the {total_b} bytes announced", hint="try again later"
                    )
                _write_all(file, block)
                on_bytes(done_b)
    except OSError as error:
        raise disk_error(error, part.name, part.parent) from error
    return done_b


def _write_all(file: FileIO, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[file.write(view) :]


def _read_block(answer: http.client.HTTPResponse) -> bytes:
    try:
        return answer.read1(_BLOCK_B)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _BrokenError(_reason(error)) from error


def _read(answer: http.client.HTTPResponse, most_b: int) -> bytes:
    try:
        data = answer.read(most_b)
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenError(_reason(error)) from error
    announced = answer.headers.get("Content-Length", "")
    if announced.isdigit() and len(data) < min(int(announced), most_b):
        raise _BrokenError("the answer ended too early")
    return data


def _json(data: bytes, url: str) -> Any:
    try:
        return msgspec.json.decode(data)
    except ValueError as error:
        raise ModelError(
            f"{urlsplit(url).hostname} answered with something that is not JSON",
            hint="a login page of the network, or an HF_ENDPOINT that is no hub",
        ) from error
