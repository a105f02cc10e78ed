"""Seeing, drawing and speaking: OpenAI-compatible endpoints, the Nous tool gateway, programs of this machine.

Addresses come from hermes.yaml, never from a model, so they are asked directly. Keys go into headers, and
into no message.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from hermes_run.core.answers import Made, Seen
from hermes_run.core.messages import Usage
from hermes_run.core.pictures import picture_type
from hermes_run.errors import ToolError
from hermes_run.outside.services import MOST_BYTES, WAIT_S, TooLarge, bounded, json_object, number, wait_s
from hermes_run.spec.media import find_source

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import httpx2

    from hermes_run.core.contracts import Download
    from hermes_run.spec.media import MediaSource
    from hermes_run.spec.model import Settings

TIMEOUT_S = 180.0
_TRIES = 3
_POLL_S = 1.0
_SOUNDS = {"mp3": "audio/mpeg", "wav": "audio/wav", "opus": "audio/ogg"}
_SIZES = {"landscape": "1536x1024", "square": "1024x1024", "portrait": "1024x1536"}
_FAL_SIZES = {"landscape": "landscape_16_9", "square": "square_hd", "portrait": "portrait_16_9"}


class MediaFailed(ToolError):
    """Nobody saw, drew or spoke. `kind` is timeout, unreachable, refused, busy, no_credit or bad_answer."""

    def __init__(self, message: str, kind: str, usage: Usage | None = None) -> None:
        super().__init__(message, usage=usage)
        self.kind = kind


class Media:
    """Asks whom hermes.yaml names. Made for a run; connections are made when first used.

    `download` fetches a public address that a service answers with.
    """

    def __init__(self, settings: Settings, download: Callable[..., Awaitable[Download]]) -> None:
        self._settings = settings
        self._download = download
        self._clients: dict[str, httpx2.AsyncClient] = {}

    async def see(self, image: bytes, media_type: str, question: str) -> Seen:
        """See `Outside.see`."""
        source = self._source("vision")
        picture = f"data:{media_type};base64,{base64.b64encode(image).decode()}"
        content = [{"type": "text", "text": question}, {"type": "image_url", "image_url": {"url": picture}}]
        body = {"model": source.model, "messages": [{"role": "user", "content": content}]}
        answer = await self._json(source, "POST", "/chat/completions", body)
        text, usage = _said(answer), _usage(answer.get("usage"), source)
        if not text:
            why = f"{source.name} said nothing about the picture; ask otherwise"
            raise MediaFailed(why, "bad_answer", usage)
        return Seen(text, usage)

    async def draw(self, prompt: str, aspect_ratio: str) -> Made:
        """See `Outside.draw`."""
        source = self._source("images")
        if source.is_gateway:
            return await self._draw_by_queue(source, prompt, aspect_ratio)
        body = {"model": source.model, "prompt": prompt, "n": 1, "size": _SIZES[aspect_ratio]}
        answer = await self._json(source, "POST", "/images/generations", body)
        return await self._picture(_first(answer.get("data")), source, _usage(answer.get("usage"), source))

    async def _draw_by_queue(self, source: MediaSource, prompt: str, aspect_ratio: str) -> Made:
        """A job of the FAL queue: submitted, asked about until it is done, fetched."""
        body = {"prompt": prompt, "num_images": 1, "image_size": _FAL_SIZES[aspect_ratio]}
        job = await self._json(source, "POST", f"/{source.model}", body)
        where = f"/{'/'.join(source.model.split('/')[:2])}/requests/{job.get('request_id')}"
        for _ in range(int(TIMEOUT_S / _POLL_S)):
            if (await self._json(source, "GET", f"{where}/status")).get("status") == "COMPLETED":
                break
            await asyncio.sleep(_POLL_S)
        else:
            text = f"no picture within {TIMEOUT_S:g} s; ask for something simpler"
            raise MediaFailed(text, "timeout", _usage(None, source))
        answer = await self._json(source, "GET", where)
        return await self._picture(_first(answer.get("images")), source, _usage(None, source))

    async def _picture(self, row: dict[str, Any], source: MediaSource, usage: Usage) -> Made:
        """The picture that an answer holds or points to; it was paid also when it cannot be had."""
        try:
            if isinstance(row.get("b64_json"), str):
                data = _decoded(row["b64_json"], source)
            elif isinstance(row.get("url"), str):
                data = await self._fetched(row["url"], source)
            else:
                raise MediaFailed(f"{source.name} gave no picture; ask otherwise", "bad_answer")
        except ToolError as failure:
            failure.usage = usage
            raise
        media_type = picture_type(data)
        if not media_type:
            raise MediaFailed(f"{source.name} gave something that is no picture", "bad_answer", usage)
        return Made(data, media_type, source.name, usage)

    async def speak(self, text: str, kind: str) -> Made:
        """See `Outside.speak`."""
        source = self._source("speech")
        if source.is_program:
            return Made(await _spoken_here(source, text), "audio/wav", source.name)
        body = {
            "model": source.model,
            "input": text,
            "voice": source.voice or "alloy",
            "response_format": kind,
        }
        answer = await self._ask(source, "POST", "/audio/speech", body)
        usage, media_type = _usage(None, source), _sound_type(answer, kind)
        if not media_type:
            raise MediaFailed(f"{source.name} gave no sound", "bad_answer", usage)
        return Made(answer.content, media_type, source.name, usage)

    def _source(self, section: str) -> MediaSource:
        found = find_source(section, self._settings)
        if isinstance(found, str):
            raise MediaFailed(found, "unreachable")
        return found

    async def _fetched(self, url: str, source: MediaSource) -> bytes:
        """What an answer points to: at the service itself, or at a public address."""
        if url.startswith("data:"):
            return _decoded(url, source)
        try:
            url = urljoin(f"{source.base_url}/", url)
        except ValueError:
            raise MediaFailed(f"{source.name} gave an address that is none", "bad_answer") from None
        if urlsplit(url)[:2] == urlsplit(source.base_url)[:2]:
            return (await self._ask(source, "GET", url.removeprefix(source.base_url))).content
        return (await self._download(url, max_bytes=MOST_BYTES)).body

    async def _json(self, source: MediaSource, method: str, path: str, body: Any = None) -> dict[str, Any]:
        content = json_object(await self._ask(source, method, path, body), source.key)
        if content is None:
            raise MediaFailed(f"{source.name} gave no JSON object", "bad_answer", _usage(None, source))
        return content

    async def _ask(self, source: MediaSource, method: str, path: str, body: Any = None) -> httpx2.Response:
        """The answer to one question; asked again when the other side is busy or broken."""
        import httpx2

        url = path if path.startswith("http") else source.base_url + path
        for left in reversed(range(_TRIES)):
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    answer = await bounded(self._client(source), method, url, json=body)
            except TimeoutError:
                why = f"{source.name} gave no answer within {TIMEOUT_S:g} s"
                raise MediaFailed(why, "timeout", _usage(None, source)) from None
            except (TooLarge, httpx2.InvalidURL) as error:
                raise MediaFailed(f"{source.name}: {error}", "bad_answer", _usage(None, source)) from None
            except httpx2.HTTPError as error:
                if left:
                    await asyncio.sleep(WAIT_S)
                    continue
                text = f"{source.name} cannot be reached ({type(error).__name__}); go on without it"
                raise MediaFailed(text, "unreachable") from None
            if (answer.status_code == 429 or answer.status_code >= 500) and left:
                await asyncio.sleep(wait_s(answer))
                continue
            _check(answer, source)
            return answer
        raise AssertionError("the last try returns or raises")

    def _client(self, source: MediaSource) -> httpx2.AsyncClient:
        if source.base_url not in self._clients:
            import httpx2

            from hermes_run.spec.endpoint import proxy_for

            headers = {"User-Agent": "hermes-run"}
            if source.key is not None:
                scheme = "Key" if source.is_gateway and "/v1" not in source.base_url else "Bearer"
                headers["Authorization"] = f"{scheme} {source.key.reveal()}"
            self._clients[source.base_url] = httpx2.AsyncClient(
                proxy=proxy_for(source.base_url) or None,
                trust_env=False,
                follow_redirects=False,
                timeout=TIMEOUT_S,
                headers=headers,
            )
        return self._clients[source.base_url]

    async def aclose(self) -> None:
        """Close its connections."""
        for client in self._clients.values():
            await client.aclose()


def _check(answer: httpx2.Response, source: MediaSource) -> None:
    status = answer.status_code
    if 200 <= status < 300:
        return
    said = _error_text(answer, source)
    if status in {401, 403}:
        raise MediaFailed(f"{source.name} refuses (HTTP {status}){said}", "refused")
    if status == 402:
        raise MediaFailed(
            f"the account at {source.name} has no credit left (HTTP 402); go on without it", "no_credit"
        )
    if status == 429 or status >= 500:
        raise MediaFailed(f"{source.name} is busy or broken (HTTP {status}); go on without it", "busy")
    raise MediaFailed(f"{source.name} refuses (HTTP {status}){said}", "refused")


def _error_text(answer: httpx2.Response, source: MediaSource) -> str:
    """What an error says, short and without the key."""
    error = (json_object(answer, source.key) or {}).get("error")
    text = error.get("message") if isinstance(error, dict) else error
    if not isinstance(text, str) or not text.strip():
        return ""
    return f": {text.strip()[:300]}"


def _said(answer: dict[str, Any]) -> str:
    message = _first(answer.get("choices")).get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "".join(text for text in texts if isinstance(text, str))
    return content.strip() if isinstance(content, str) else ""


def _first(rows: Any) -> dict[str, Any]:
    """The first object of a list; an empty one where there is none."""
    return rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}


def _sound_type(answer: httpx2.Response, kind: str) -> str:
    """What the sound is: by its first bytes, else as asked for; "" for what is no sound."""
    data = answer.content
    if data[:4] == b"RIFF" or data[:4] == b"OggS":
        return "audio/wav" if data[:4] == b"RIFF" else "audio/ogg"
    told = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_text = told.startswith("text/") or "json" in told or data.lstrip()[:1] in (b"{", b"<")
    return "" if not data or is_text else _SOUNDS[kind]


def _usage(said: Any, source: MediaSource) -> Usage:
    """What a call used, where the endpoint tells; its cost as it tells, else by hermes.yaml's price.

    What nobody tells is unknown and counted so, never nothing.
    """
    said, price = said if isinstance(said, dict) else {}, source.price or {}
    prompt = _count(said.get("prompt_tokens", said.get("input_tokens")))
    completion = _count(said.get("completion_tokens", said.get("output_tokens")))
    total = max(_count(said.get("total_tokens")), prompt + completion)
    cost = number(said.get("cost"))
    if cost is None and price.get("flat"):
        cost = 0.0
    elif cost is None and total and ("input" in price or "output" in price):
        cost = (prompt * price.get("input", 0.0) + completion * price.get("output", 0.0)) / 1e6
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=total,
        cost=cost or 0.0,
        calls=1,
        calls_without_usage=0 if total else 1,
        calls_without_cost=1 if cost is None else 0,
    )


def _count(value: Any) -> int:
    return int(number(value) or 0)


def _decoded(text: str, source: MediaSource) -> bytes:
    """Base64, also with line breaks, or as a data URL."""
    text = text.partition(",")[2] if text.startswith("data:") else text
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise MediaFailed(f"{source.name} gave a picture that is no base64", "bad_answer") from None


async def _spoken_here(source: MediaSource, text: str) -> bytes:
    """A WAV file from a program of this machine, which reads the text from its stdin."""
    words = [source.name, "--stdin", "--stdout"]
    if source.voice:
        words += ["-v", source.voice]
    if source.name == "piper":
        words = ["piper", "--model", source.model, "--output_file", "-"]
        text = " ".join(text.split())
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            sound, _ = await process.communicate(text.encode("utf-8", "replace"))
    except TimeoutError:
        raise MediaFailed(f"{source.name} did not end within {TIMEOUT_S:g} s; say less", "timeout") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()  # asyncio tells of no end before all is read
    if process.returncode or not sound.startswith(b"RIFF"):
        raise MediaFailed(f"{source.name} gave no sound (exit code {process.returncode})", "bad_answer")
    return _whole(sound)


def _whole(wav: bytes) -> bytes:
    """A WAV file with its sizes: what is written into a pipe does not know them yet."""
    at = wav.find(b"data")
    if at < 0:
        return wav
    riff, data = (size.to_bytes(4, "little") for size in (len(wav) - 8, len(wav) - at - 8))
    return wav[:4] + riff + wav[8 : at + 4] + data + wav[at + 8 :]
