"""What helps when an endpoint refuses what every request of a run holds."""

from __future__ import annotations

import re

_OTHERWISE = "correct the spec"
_WHERE = "check model.name and model.base_url (the address of an API often ends with /v1)"
_BY_FIELD = (
    (r"http request .{0,20}https (port|server)", "write https:// in model.base_url"),
    (
        r"prefill|(last|final) (message|role)|end with (a )?user|continue_final_message",
        "this model wants a user's message last: change agent.prefill_messages_file, or choose another model",
    ),
    (r"\b(reasoning|thinking)", "take `reasoning` out of the spec, or choose a model that can be told"),
    (r"--enable-auto-tool-choice", "start the server with tool calling (see its documentation)"),
    (
        r"\b(tools?|tool[ _](use|choice|calling)|function[ _]call\w*|functions)\b",
        "choose a model that calls tools",
    ),
    (r"\b(temperature|top_p|seed|stop)\b", "change model.sampling, or take it out"),
    (r"\b(max_tokens|max_completion_tokens)\b", "change model.max_tokens"),
    (r"\bprovider\b", "change provider_routing"),
    (r"\bstream_options\b", "add stream_options: null to model.extra_body"),
    (
        r"(unknown|unrecognized) (request )?(argument|name|field|key|property)",
        "take that field out of model.extra_body or the spec",
    ),
    (r"\bmodel\b", _WHERE),
)


def cure_for(status: int, message: str) -> str:
    """What to do about a refusal, by the status and what the endpoint said."""
    said = message.lower()
    found = next((cure for pattern, cure in _BY_FIELD if re.search(pattern, said)), "")
    if status in (404, 405, 410):
        return found if "tool" in found else _WHERE
    return found if status in (400, 422) and found else _OTHERWISE
