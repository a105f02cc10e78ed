"""Seeing, drawing and speaking: OpenAI-compatible endpoints, the Nous tool gateway, programs of this machine.

Addresses come from hermes.yaml, never from a model, so they are asked directly. Keys go into headers, and
into no message.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hermes_run.core.answers import Made, Seen
from hermes_run.core.messages import Usage
from hermes_run.core.pictures import picture_type
from hermes_run.errors import ToolError
from hermes_run.spec.media import find_source

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import httpx2

    from hermes_run.core.contracts import Download
    from hermes_run.spec.media import MediaSource
    from hermes_run.spec.model import Settings

TIMEOUT_S = 180.0
MOST_BYTES = 40 * 2**20
_TRIES = 3
_WAIT_S = 1.0
_MOST_WAIT_S = 10.0
_POLL_S = 1.0
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
        rows = answer.get("data")
        row = rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}
        usage = _usage(answer.get("usage"), source)
        if isinstance(row.get("b64_json"), str):
            return _picture(_decoded(row["b64_json"], source), source, usage)
        if isinstance(row.get("url"), str):
            return _picture(await self._fetched(row["url"], source), source, usage)
        raise MediaFailed(f"{source.name} gave no picture; ask otherwise", "bad_answer", usage)

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
        images = answer.get("images")
        url = (
            images[0].get("url")
            if isinstance(images, list) and images and isinstance(images[0], dict)
            else None
        )
        if not isinstance(url, str):
            raise MediaFailed(
                f"{source.name} gave no picture; ask otherwise", "bad_answer", _usage(None, source)
            )
        return _picture(await self._fetched(url, source), source, _usage(None, source))

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
        media_type = answer.headers.get("content-type", "").partition(";")[0].strip()
        if not answer.content or media_type in ("application/json", "text/html"):
            raise MediaFailed(f"{source.name} gave no sound", "bad_answer", _usage(None, source))
        types = {"mp3": "audio/mpeg", "wav": "audio/wav", "opus": "audio/ogg"}
        return Made(answer.content, types[kind], source.name, _usage(None, source))

    def _source(self, section: str) -> MediaSource:
        found = find_source(section, self._settings)
        if isinstance(found, str):
            raise MediaFailed(found, "unreachable")
        return found

    async def _fetched(self, url: str, source: MediaSource) -> bytes:
        """What an answer points to: at the service itself, or at a public address."""
        if url.startswith("data:"):
            return _decoded(url.partition(",")[2], source)
        if urlsplit(url)[:2] == urlsplit(source.base_url)[:2]:
            return (await self._ask(source, "GET", url.removeprefix(source.base_url))).content
        return (await self._download(url, max_bytes=MOST_BYTES)).body

    async def _json(self, source: MediaSource, method: str, path: str, body: Any = None) -> dict[str, Any]:
        answer = await self._ask(source, method, path, body)
        try:
            content = answer.json()
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise MediaFailed(f"{source.name} gave no JSON object", "bad_answer", _usage(None, source))
        return content

    async def _ask(self, source: MediaSource, method: str, path: str, body: Any = None) -> httpx2.Response:
        """The answer to one question; asked again when the other side is busy or broken."""
        import httpx2

        url = path if path.startswith("http") else source.base_url + path
        for left in reversed(range(_TRIES)):
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    answer = await _bounded(self._client(source), method, url, body)
            except TimeoutError:
                why = f"{source.name} gave no answer within {TIMEOUT_S:g} s"
                raise MediaFailed(why, "timeout", _usage(None, source)) from None
            except httpx2.HTTPError as error:
                if left:
                    await asyncio.sleep(_WAIT_S)
                    continue
                text = f"{source.name} cannot be reached ({type(error).__name__}); go on without it"
                raise MediaFailed(text, "unreachable") from None
            if (answer.status_code == 429 or answer.status_code >= 500) and left:
                wait = answer.headers.get("retry-after", "")
                await asyncio.sleep(min(float(wait), _MOST_WAIT_S) if wait.isdigit() else _WAIT_S)
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


async def _bounded(client: httpx2.AsyncClient, method: str, url: str, body: Any) -> httpx2.Response:
    """An answer with its body, of `MOST_BYTES` at most."""
    import httpx2

    async with client.stream(method, url, json=body) as answer:
        content = bytearray()
        async for piece in answer.aiter_bytes():
            content += piece
            if len(content) > MOST_BYTES:
                raise MediaFailed(f"the answer is larger than {MOST_BYTES >> 20} MiB", "bad_answer")
        headers = {k: v for k, v in answer.headers.items() if k in ("content-type", "retry-after")}
        return httpx2.Response(answer.status_code, headers=headers, content=bytes(content))


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
    try:
        error = answer.json().get("error")
    except (ValueError, AttributeError):
        return ""
    text = error.get("message") if isinstance(error, dict) else error
    if not isinstance(text, str) or not text.strip():
        return ""
    if source.key is not None:
        text = text.replace(source.key.reveal(), "[key]")
    return f": {text.strip()[:300]}"


def _said(answer: dict[str, Any]) -> str:
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    content = (choice.get("message") or {}).get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content.strip() if isinstance(content, str) else ""


def _usage(said: Any, source: MediaSource) -> Usage:
    """What a call used, where the endpoint tells; its cost as it tells, else by hermes.yaml's price.

    What nobody tells is unknown and counted so, never nothing.
    """
    said, price = said if isinstance(said, dict) else {}, source.price or {}
    prompt = _count(said.get("prompt_tokens", said.get("input_tokens")))
    completion = _count(said.get("completion_tokens", said.get("output_tokens")))
    if not prompt and not completion:
        return Usage(calls=1, calls_without_usage=1, calls_without_cost=0 if price.get("flat") else 1)
    cost = said.get("cost")
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        cost = None
        if price.get("flat"):
            cost = 0.0
        elif "input" in price or "output" in price:
            cost = (prompt * price.get("input", 0.0) + completion * price.get("output", 0.0)) / 1e6
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=_count(said.get("total_tokens")) or prompt + completion,
        cost=cost or 0.0,
        calls=1,
        calls_without_cost=1 if cost is None else 0,
    )


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _decoded(text: str, source: MediaSource) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise MediaFailed(f"{source.name} gave a picture that is no base64", "bad_answer") from None


def _picture(data: bytes, source: MediaSource, usage: Usage) -> Made:
    media_type = picture_type(data)
    if not media_type:
        raise MediaFailed(f"{source.name} gave something that is no picture", "bad_answer", usage)
    return Made(data, media_type, source.name, usage)


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
