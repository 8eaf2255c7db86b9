"""What the mock engine can be told."""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass
from pathlib import Path

from bench.errors import UsageError
from bench.mock.quirks import parse_quirks
from bench.unix_url import parse_unix

MAX_TOKENS = 131_072
"""Most tokens that one reply may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MockOptions:
    """Where the mock engine serves (`host` may be `unix:/path/to/socket`) and when it sends: first content chunk `ttft_ms` after
    arrival, then one chunk each `gap_ms`. `prefill_us_per_token` adds to the TTFT for each uncached prompt token.
    `max_in_flight` makes later requests wait. `truth_chunks` bounds how many chunk stamps are kept. `api_key_env` is the
    *name* of a variable. `emission_file` gets a running account of the tokens sent: see `bench.mock.emission`.
    `until_stdin_ends` ends it with whoever holds the other end of its standard input.
    """

    host: str = "127.0.0.1"
    port: int = 0
    port_file: Path | None = None
    ttft_ms: float = 50.0
    gap_ms: float = 20.0
    model: str = "mock"
    tokens_per_chunk: int = 1
    api_key_env: str | None = None
    quirks: tuple[str, ...] = ()
    prefill_us_per_token: float = 0.0
    max_in_flight: int | None = None
    seed: int = 0
    truth_chunks: int = 20_000_000
    allow_remote: bool = False
    emission_file: Path | None = None
    until_stdin_ends: bool = False


def check_options(options: MockOptions) -> None:
    """Refuse what can't work. Raises: UsageError."""
    for name in ("ttft_ms", "gap_ms", "prefill_us_per_token"):
        value = getattr(options, name)
        if not (math.isfinite(value) and value >= 0):
            raise UsageError(f"{name} is {value}: it must be a number of at least 0")
    for name in ("tokens_per_chunk", "max_in_flight", "truth_chunks"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UsageError(f"{name} is {value}: it must be at least 1")
    if not 0 <= options.port <= 65535:
        raise UsageError(f"port {options.port} is not from 0 to 65535")
    if not options.allow_remote and not is_loopback(options.host):
        raise UsageError(
            f"the mock engine is a test tool and serves only this host, not {options.host!r}",
            hint="use --host 127.0.0.1, or add --allow-remote on a network you trust",
        )
    parse_quirks(options.quirks)


def socket_path(host: str) -> str | None:
    """The file of a `host` that is a socket, else None. Raises: UsageError where it names none."""
    try:
        unix = parse_unix(host)
    except ValueError:
        raise UsageError(f"host {host!r} names no socket", hint="write its whole path, as in unix:/run/llm.sock") from None
    return None if unix is None else unix.socket_path


def is_loopback(host: str) -> bool:
    """Whether only this host can reach a server on `host`."""
    if host == "localhost" or socket_path(host) is not None:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def command_line(options: MockOptions) -> list[str]:
    """`options` as flags of `bench mock-server`."""
    flags = [f"--host={options.host}", f"--port={options.port}", f"--ttft-ms={options.ttft_ms!r}", f"--gap-ms={options.gap_ms!r}"]
    flags += [f"--model={options.model}", f"--tokens-per-chunk={options.tokens_per_chunk}", f"--seed={options.seed}"]
    flags += [f"--prefill-us-per-token={options.prefill_us_per_token!r}", f"--truth-chunks={options.truth_chunks}"]
    flags += [f"--quirk={quirk}" for quirk in options.quirks]
    if options.port_file is not None:
        flags.append(f"--port-file={options.port_file}")
    if options.api_key_env is not None:
        flags.append(f"--api-key-env={options.api_key_env}")
    if options.max_in_flight is not None:
        flags.append(f"--max-in-flight={options.max_in_flight}")
    if options.emission_file is not None:
        flags.append(f"--emission-file={options.emission_file}")
    if options.allow_remote:
        flags.append("--allow-remote")
    if options.until_stdin_ends:
        flags.append("--until-stdin-ends")
    return flags
