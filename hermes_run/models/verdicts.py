"""What an answer that is no usable reply means: the error table of the wire, as pure functions.

| what comes | verdict |
|---|---|
| 408, 409, 5xx, a drop, a time-out, a body that is no reply | `retry`, at the earliest after Retry-After |
| 429; 402 with Retry-After | `cool_down`, for all rollouts together |
| 413, 400 that says the context is too long | `context` |
| 401, 403, 407; 402, 429 `insufficient_quota`; 3xx, 404, 405, 410, 400 about what all rows share | `stop` |
| 400 or 403 of a moderation | `fail` with the reason `filtered` |
| 400 that says that the model wrote no call | `retry` with the reason `malformed_call` |
| 402 with an affordable length; 400 that wants another length field, a stream, no reasoning back | `adapt` |
| any other 4xx | `fail` with the reason `provider_error` |

The texts go into the manifest, which is equal for equal runs: `scrub` takes out what varies.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from hermes_run.core.messages import Usage
from hermes_run.core.secrets import redactor_of
from hermes_run.core.text import clean
from hermes_run.errors import CredentialsRefused, EnvironmentStop, OutOfCredit, RequestRefused
from hermes_run.models.cures import cure_for
from hermes_run.models.said import Said, read_body, read_value
from hermes_run.models.waits import retry_after_s, told_wait_s

if TYPE_CHECKING:
    from collections.abc import Mapping

_DETAIL_CHARS = 300

Kind = Literal["retry", "cool_down", "stop", "fail", "context", "adapt"]


class Verdict(msgspec.Struct, frozen=True):
    """What to do about an answer.

    Attributes:
        kind: see the module's table.
        text: what happened, for people and the manifest.
        reason: of the contract's reasons for `failed`; also which retries are used up.
        wait_s: what the endpoint asked for by Retry-After, capped; None when it did not.
        stop: the error that stops the run, for `stop`.
        cure: what helps, for `stop`, where what was said tells that.
        unreached: the endpoint could not be connected to.
        is_page: a web page came instead of a reply.
        adapt: what to send otherwise, for `adapt`: `max_tokens`, `length_field`, `is_stream` or
            `takes_reasoning`.
        affordable: the most tokens that the credit allows, for `adapt: max_tokens`.
    """

    kind: Kind
    text: str
    reason: str = "provider_error"
    wait_s: float | None = None
    stop: type[EnvironmentStop] = EnvironmentStop
    cure: str = ""
    unreached: bool = False
    is_page: bool = False
    adapt: str = ""
    affordable: int = 0


UNKNOWN_USAGE = Usage(calls=1, calls_without_usage=1, calls_without_cost=1)
"""Of a call that was answered, or may have been, without saying what it cost."""


class Unusable(Exception):
    """One attempt gave no usable reply. Never leaves `retry.py`. `usage` is what it was billed."""

    def __init__(self, verdict: Verdict, usage: Usage | None = None) -> None:
        super().__init__(verdict.text)
        self.verdict = verdict
        self.usage = usage or Usage()


_VARYING = re.compile(
    r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"  # dates
    r"|\b\d\d?:\d\d:\d\d(?:\.\d+)?\b"  # times
    r"|\b(?=[0-9a-fA-F-]*\d)(?:[0-9a-fA-F]{8,}(?:-[0-9a-fA-F]{4,})*)\b"  # hashes, UUIDs, epochs
    r"|\b(?:req|request|chatcmpl|cmpl|gen|call|run|resp|msg|trace|org|proj|user|sk|pk|key)[-_](?=\S*\d)[\w-]{4,}"
    r"|\bsk-[\w*.-]+"  # keys, masked or not
    r"|\b(?=\w*\d)(?=\w*[A-Za-z])\w{20,}\b"  # other long ids
    r"|(?:/tmp|/var/folders|/var/tmp|/dev/shm)/\S+"  # temporary paths
    r"|0x[0-9a-fA-F]+"
    r"|(?<=[\w\]]):\d{2,5}\b"  # ports
    r"|\b\d+(?:\.\d+)?(?:m\d+(?:\.\d+)?)?\s?(?:ms|s|secs?|seconds?|m|minutes?)\b"  # durations
)


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def scrub(text: str, secret: str = "") -> str:
    """One short line of `text` without ids, times, ports, temporary paths and keys."""
    if secret:
        text = redactor_of(secret, "…")(text.replace(secret, "…"))
    line = " ".join(_VARYING.sub("…", _CONTROL.sub(" ", clean(text))).split())
    return line if len(line) <= _DETAIL_CHARS else line[: _DETAIL_CHARS - 1] + "…"


_CONTEXT = re.compile(
    r"context[ _](length|window|size)|maximum (context|prompt|model|sequence) length|max_(model|seq)_len"
    r"|(prompt|input) is too long|too many (input )?tokens|reduce the length|model token limit"
    r"|exceeds? (the (available|maximum) (context|input)|max(imum)? length)|range of input length"
    r"|(input|prompt|total) (tokens?|length) .{0,40}exceeds?|tokens? (in|of) the (input|prompt) .{0,40}exceed"
    r"|string_above_max_length|request too large|payload too large"
    r"|`inputs` tokens \+ `max_new_tokens`|max_(completion_)?tokens must be at least 1, got -"
)
_WINDOW = re.compile(r"context (?:length|window)\D{1,12}(\d{1,9})\b")
_ASKED = re.compile(
    r"tokens\W{1,3}is too large: (\d{1,9})\b"
    r"|\b(\d{1,9}) (?:output tokens|in the completion|tokens for the completion)"
)
_MODERATED = re.compile(
    r"content[_ -]?(filter|policy|management)|moderat|flagged|safety (system|policy|filter)|sensitive_content"
    r"|(inappropriate|unsafe|sensitive|harmful|prohibited) .{0,20}content|data_inspection|guardrail"
)
_OF_THE_ACCOUNT = re.compile(
    r"\b(account|organization|team|project|api key)\b.{0,40}(flagged|suspended|banned|disabled|blocked)"
)
_CREDENTIALS = re.compile(
    r"api[ _]?key.{0,20}(invalid|not valid|expired|incorrect)|(invalid|incorrect)[ _]api[ _]?key"
)
_NO_CREDIT = re.compile(
    r"insufficient_quota|insufficient (credit|balance|funds)|billing_|credit balance is too low"
    r"|used all available credits|(spending|credit) limit"
)
_NO_QUOTA = re.compile(r"exceeded your current quota")
"""Said of an empty account, and by Google of the requests of a minute, with the wait until there are more."""
_AFFORDABLE = re.compile(r"can only afford (\d{1,9})\b")
_MALFORMED = re.compile(r"tool_use_failed|output_parse_failed")
"""Codes of Groq: what the model wrote is no call."""
_LENGTH_FIELD = re.compile(r"max_tokens.{0,80}max_completion_tokens", re.DOTALL)
_WANTS_STREAM = re.compile(
    r"(only supports?|only works? with|requires?|must (use|be|set)).{0,30}\bstream"
    r"|stream.{0,20}(is required|must be (set to )?true|should be (set to )?true)"
    r"|non-stream\w*.{0,40}not (supported|allowed)"
)
_NO_REASONING = re.compile(
    r"messages?\b.{0,80}\breasoning(_content|_details)?\b.{0,120}"
    r"(unsupported|not (supported|permitted|allowed)|unexpected|unknown|unrecognized)"
    r"|(unexpected|unknown|unrecognized) .{0,60}\breasoning(_content|_details)?\b.{0,30}messages?\b"
    r"|extra (inputs|fields) .{0,60}messages?\b.{0,40}\breasoning"
    r"|remove the reasoning_content"
)
"""Of a turn's reasoning that was sent back."""
_REASONING_FIELD = re.compile(r"messages?\b.*\breasoning(_content|_details)?")
_WANTS_TLS = re.compile(r"http request .{0,20}https (port|server)")
_PREFILL = re.compile(r"prefill|(last|final) (message|role)|end with (a )?user|continue_final_message")
_OF_ONE_ROW = re.compile(
    r"tool[ _]calls?\b|tool[ _]result|tool message|role '?\"?tool|(?<!request )arguments|messages?[\[.]\d"
)
_SHARED_FIELD = re.compile(
    r"(not|doesn't|cannot|can't) (support|allow|use|work)|unsupported|unknown|unrecognized|unexpected"
    r"|not permitted|no endpoints|not (a )?valid|invalid|not found|does not exist|must be|out of range"
    r"|not available|requires?\b|too (large|many|high|low)|(greater|less) than|at most|maximum allowed"
)
_FIELD_NAMES = re.compile(
    r"\b(reasoning\w*|thinking|tools?|tool[ _](use|choice|calling)|function[ _]call\w*|functions|model"
    r"|provider|temperature|top_p|seed|stop|max_tokens|max_completion_tokens|extra fields?|parameters?"
    r"|schema|stream_options|(unknown|unrecognized) (request )?(argument|name|field|key|property))\b"
)


def _is_moderation(said: Said) -> bool:
    """Whether it is about what one row says, and not about the account."""
    known = said.known
    return said.moderated or bool(_MODERATED.search(known) and not _OF_THE_ACCOUNT.search(known))


def _is_shared(said: Said) -> bool:
    """Whether a 400 is about something that every row's request holds alike."""
    message = said.heard
    if _PREFILL.search(message) or _WANTS_TLS.search(message):
        return True
    if said.field:
        return not said.field.startswith(("messages", "message", "input"))
    if _OF_ONE_ROW.search(message):
        return False
    return bool(_SHARED_FIELD.search(message) and _FIELD_NAMES.search(message))


def _adaptation(said: Said, text: str) -> Verdict | None:
    """What a 400 wants to be sent otherwise, if it is something that the client can do."""
    message = said.heard
    if _LENGTH_FIELD.search(message):
        return Verdict("adapt", text, stop=RequestRefused, adapt="length_field")
    if _NO_REASONING.search(message) or _REASONING_FIELD.fullmatch(said.field):
        return Verdict("adapt", text, stop=RequestRefused, adapt="takes_reasoning")
    if _WANTS_STREAM.search(message):
        return Verdict("adapt", text, stop=RequestRefused, adapt="is_stream")
    return None


def _asks_for_more_than_there_is(said: Said) -> bool:
    """Whether the reply alone may be as long as the window: a matter of the spec, not of one conversation."""
    window, asked = _WINDOW.search(said.haystack), _ASKED.search(said.haystack)
    return bool(window and asked and int(asked[1] or asked[2]) >= int(window[1]))


def _judge_refusal(status: int, said: Said, text: str) -> Verdict:
    """400, 413, 422 and the 4xx without a rule of their own."""
    if status == 400 and _MALFORMED.search(said.code):
        return Verdict("retry", text, "malformed_call")
    if status in (400, 422):
        found = _judge_bad_request(status, said, text)
        if found is not None:
            return found
    if status == 413:
        return Verdict("context", text)
    return Verdict("fail", text, "filtered" if _is_moderation(said) else "provider_error")


def _judge_bad_request(status: int, said: Said, text: str) -> Verdict | None:
    """What a 400 or 422 says of the request; None when that is nothing known."""
    if _CONTEXT.search(said.known):
        if _asks_for_more_than_there_is(said):
            return Verdict("stop", text, stop=RequestRefused, cure=cure_for(status, "max_tokens"))
        return Verdict("context", text)
    found = _adaptation(said, text)
    if found is not None or _is_moderation(said):
        return found
    for pattern, stop in ((_NO_CREDIT, OutOfCredit), (_CREDENTIALS, CredentialsRefused)):
        if pattern.search(said.known):
            return Verdict("stop", text, stop=stop)
    if _is_shared(said):
        cure = cure_for(status, f"{said.field} {said.heard}")
        text = f"{text.removesuffix('.')} (every row would be refused alike)"
        return Verdict("stop", text, stop=RequestRefused, cure=cure)
    return None


def _judge_limits(status: int, said: Said, text: str, wait_s: float | None) -> Verdict:
    """402 and 429: no credit, or too fast."""
    affordable = _AFFORDABLE.search(said.heard) if status == 402 and wait_s is None else None
    if affordable and int(affordable[1]) > 0:
        return Verdict("adapt", text, stop=OutOfCredit, adapt="max_tokens", affordable=int(affordable[1]))
    heard = f"{said.code} {said.heard}"
    is_broke = status == 402 and wait_s is None
    if status == 429:
        wait_s = told_wait_s(said.haystack) if wait_s is None else wait_s
        is_broke = bool(_NO_CREDIT.search(heard) or (wait_s is None and _NO_QUOTA.search(heard)))
    if is_broke:
        return Verdict("stop", text, stop=OutOfCredit)
    return Verdict("cool_down", text, wait_s=wait_s)


_OF_THE_PROXY = "check the user and the password of the proxy in HTTPS_PROXY or HTTP_PROXY"


def judge_inside(error: Any, secret: str = "") -> Verdict:
    """What an `error` inside of a 200 means (a stream is a 200 before it is known how it ends)."""
    said = read_value({"error": error}, json.dumps(error))
    text = f"an error inside the reply: {scrub(said.message, secret)}"
    if _CONTEXT.search(said.known):
        return Verdict("context", text)
    return Verdict("fail", text, "filtered") if _is_moderation(said) else Verdict("retry", text)


def judge_error(status: int, headers: Mapping[str, str], body: bytes, secret: str = "") -> Verdict:
    """What an HTTP answer other than 200 means. `headers` finds lower-case names; `secret` is masked."""
    said = read_body(body)
    detail = scrub(said.message, secret)
    text = f"HTTP {status}: {detail}" if detail else f"HTTP {status}"
    wait_s = retry_after_s(headers)
    if status in (408, 409) or status >= 500:
        return Verdict("retry", text, wait_s=wait_s)
    if status in (402, 429):
        return _judge_limits(status, said, text, wait_s)
    if status == 407:
        return Verdict("stop", text, stop=CredentialsRefused, cure=_OF_THE_PROXY)
    if status == 401 or (status == 403 and not _is_moderation(said)):
        is_broke = status == 403 and _NO_CREDIT.search(said.known)
        return Verdict("stop", text, stop=OutOfCredit if is_broke else CredentialsRefused)
    if status < 400:
        text = f"HTTP {status}, which is no reply; write the address that it leads to as model.base_url"
    if status < 400 or status in (404, 405, 410):
        return Verdict("stop", text, stop=RequestRefused, cure=cure_for(status, said.heard))
    return _judge_refusal(status, said, text)
