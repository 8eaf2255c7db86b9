"""The bytes of the mock engine's replies. Everything a stream needs is rendered once per shape and kept."""

from __future__ import annotations

from functools import lru_cache
from http import HTTPStatus

import msgspec

from bench.mock.api import Ask
from bench.mock.logprobs import logprobs_of
from bench.mock.quirks import Quirks

WORDS = ("tok", "joule", "watt", "volt", "naïve", "ampere", "日本", "second", "hertz", "ohm", "🙂", "farad")
"""Token k is word k modulo 12 and its number; three words hold characters of two, three and four bytes."""

RETRY_AFTER_S = 1
COMMENT = b": keep-alive"

_LAST_CHUNK = b"0\r\n\r\n"
_TRAILERS = b"0\r\nx-mock-trailer: end\r\n\r\n"


def token_text(index: int) -> str:
    """The text of token number `index`."""
    return f" {WORDS[index % len(WORDS)]}{index}"


def tokens_text(first: int, count: int) -> str:
    """The text of `count` tokens from number `first`."""
    return "".join(map(token_text, range(first, first + count)))


def usage_json(prompt_tokens: int, output_tokens: int, cached_tokens: int | None) -> bytes:
    """OpenAI's usage object."""
    usage: dict[str, object] = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": prompt_tokens + output_tokens,
    }
    if cached_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached_tokens}
    return msgspec.json.encode(usage)


def plain_response(
    status: int,
    body: bytes,
    *,
    content_type: str = "application/json",
    headers: tuple[tuple[str, str], ...] = (),
    close: bool = False,
) -> bytes:
    """A whole HTTP/1.1 response with Content-Length."""
    lines = [f"HTTP/1.1 {status} {_phrase(status)}", f"content-type: {content_type}", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers]
    if close:
        lines.append("connection: close")
    return "\r\n".join([*lines, "", ""]).encode() + body


@lru_cache
def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Mock Status"


class Renderer:
    """Renders for one model and one set of quirks. Events come without HTTP framing; `frame` adds it."""

    def __init__(self, *, model: str, created_s: int, quirks: Quirks) -> None:
        self._quirks = quirks
        self._event_end = b"\r\n\r\n" if "crlf" in quirks else b"\n\n"
        self._shift = int("wrong-output" in quirks)
        self._pad_b = quirks.count("big-events") or 0
        self.chunked = not ("http10" in quirks or "content-length-close" in quirks)
        self.model = model
        common = f'"created":{created_s},"model":{msgspec.json.encode(model).decode()}'.encode()
        self._chat_start = b'{"id":"chatcmpl-mock","object":"chat.completion.chunk",' + common + b',"choices":['
        self._text_start = b'{"id":"cmpl-mock","object":"text_completion",' + common + b',"choices":['
        self._chat_whole = b'{"id":"chatcmpl-mock","object":"chat.completion",' + common + b',"choices":['

    # --- events -------------------------------------------------------------------------------------------------------

    def event(self, payload: bytes) -> bytes:
        """One server-sent event."""
        return b"data: " + payload + self._event_end

    def comment(self) -> bytes:
        """A keep-alive comment."""
        return COMMENT + self._event_end

    def role(self) -> bytes:
        """The role delta that opens a chat stream."""
        content = b"null" if "role-null" in self._quirks else b'""'
        return self._choice(
            chat=True, field=b'"delta":{"role":"assistant","content":' + content + b"}", finish=b"null", usage=None
        )

    def thinking_tokens(self, tokens: int) -> int:
        """How many of a reply's tokens are reasoning."""
        for quirk in ("reasoning", "reasoning-content"):
            thinking = self._quirks.count(quirk)
            if thinking is not None:
                return thinking or tokens // 2
        return 0

    def content(self, *, chat: bool, first: int, count: int, thinking: bool, usage: bytes | None) -> bytes:
        """The event of `count` tokens from number `first`."""
        text = tokens_text(self._shift + first, count)
        short_b = self._pad_b - len(text.encode())
        encoded = msgspec.json.encode(text + "x" * max(0, short_b))
        field = self._delta(encoded, first, thinking) if chat else b'"text":' + encoded
        return self._choice(chat=chat, field=field, finish=b"null", usage=usage)

    def finish(self, *, chat: bool, reason: str) -> bytes:
        """The event with the finish reason."""
        field = b'"delta":{}' if chat else b'"text":""'
        return self._choice(chat=chat, field=field, finish=b'"' + reason.encode() + b'"', usage=None)

    def usage(self, *, chat: bool, usage: bytes) -> bytes:
        """The usage-only event: no choices."""
        start = self._chat_start if chat else self._text_start
        return self.event(start + b'],"usage":' + usage + b"}")

    def done(self) -> bytes:
        """The end of a stream."""
        return self.event(b"[DONE]")

    def error(self) -> bytes:
        """An error inside a stream that began with 200, and the end."""
        body = {"error": {"message": "mock: the engine failed in mid-stream", "type": "server_error", "param": None, "code": 500}}
        return self.event(msgspec.json.encode(body)) + self.done()

    def whole(self, ask: Ask, *, tokens: int, reason: str, usage: bytes | None) -> bytes:
        """The JSON body of a reply that is not streamed."""
        said = [token_text(self._shift + index) for index in range(tokens)]
        logprobs = b"null"
        if ask.logprobs:
            logprobs = msgspec.json.encode(logprobs_of(ask.echo, said, ask.logprobs, is_wrong=bool(self._shift)))
        text = msgspec.json.encode((ask.echo or "") + "".join(said))
        field = b'"message":{"role":"assistant","content":' + text + b"}" if ask.chat else b'"text":' + text
        choice = b'{"index":0,' + field + b',"logprobs":' + logprobs + b',"finish_reason":"' + reason.encode() + b'"}]'
        start = self._chat_whole if ask.chat else self._text_start
        return start + choice + (b',"usage":' + usage if usage is not None else b"") + b"}"

    def _choice(self, *, chat: bool, field: bytes, finish: bytes, usage: bytes | None) -> bytes:
        start = self._chat_start if chat else self._text_start
        choice = b'{"index":0,' + field + b',"logprobs":null,"finish_reason":' + finish + b"}]"
        return self.event(start + choice + (b',"usage":' + usage if usage is not None else b"") + b"}")

    def _delta(self, text: bytes, first: int, thinking: bool) -> bytes:
        if thinking:
            key = b"reasoning_content" if "reasoning-content" in self._quirks else b"reasoning"
            return b'"delta":{"' + key + b'":' + text + b"}"
        if "refusal" in self._quirks:
            return b'"delta":{"refusal":' + text + b"}"
        if "tool-calls" in self._quirks:
            name = b'"id":"call_mock","type":"function",' if first == 0 else b""
            function = b'{"name":"mock","arguments":' if first == 0 else b'{"arguments":'
            return b'"delta":{"tool_calls":[{"index":0,' + name + b'"function":' + function + text + b"}}]}"
        return b'"delta":{"content":' + text + b"}"

    # --- HTTP framing -------------------------------------------------------------------------------------------------

    def frame(self, data: bytes) -> bytes:
        """`data` as one HTTP chunk, or as it is where the reply is not chunked."""
        if not self.chunked or not data:
            return data
        return b"%x\r\n%b\r\n" % (len(data), data)

    def last_frame(self) -> bytes:
        """What ends the body."""
        if not self.chunked:
            return b""
        return _TRAILERS if "trailers" in self._quirks else _LAST_CHUNK

    def head(self, *, content_type: str = "text/event-stream; charset=utf-8", length: int | None = None) -> bytes:
        """The response head of a generation; `length` where the whole body is known to have one."""
        http10 = "http10" in self._quirks
        lines = ["HTTP/1.0 200 OK" if http10 else "HTTP/1.1 200 OK", f"content-type: {content_type}", "cache-control: no-store"]
        if "gzip" in self._quirks:
            lines.append("content-encoding: gzip")
        if http10 or "content-length-close" in self._quirks:
            lines.append("connection: close")
        if not http10 and length is not None:
            lines.append(f"content-length: {length}")
        elif not http10:
            lines.append("transfer-encoding: chunked")
        if "trailers" in self._quirks and length is None:
            lines.append("trailer: x-mock-trailer")
        head = "\r\n".join([*lines, "", ""]).encode()
        return b"HTTP/1.1 100 Continue\r\n\r\n" + head if "continue-100" in self._quirks else head
