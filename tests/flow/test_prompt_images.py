"""A row's own pictures: shown to the model with the prompt, part of the row's identity."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.core.keys import content_key
from tests.flow.replies import turns

if TYPE_CHECKING:
    from tests.flow.lab import Lab
    from tests.servers import ModelServer

PICTURE = "data:image/png;base64,iVBORw0KGgo="
ADDRESS = "https://example.org/cat.jpg"


def test_pictures_of_a_row_reach_the_model_in_every_turn(lab: Lab, server: ModelServer) -> None:
    lab.use_server(server.url)
    lab.write_rows(
        [{"prompt": "what is it?", "images": [PICTURE, ADDRESS]}, {"prompt": "a bare one", "images": []}]
    )
    server.respond = turns(2)
    result = lab.run()
    assert result.code == 0, result.err
    shown = [request for request in server.requests if "what is it" in str(request.messages)]
    assert len(shown) == 2
    for request in shown:
        assert request.messages[1]["content"] == [
            {"type": "text", "text": "what is it?"},
            {"type": "image_url", "image_url": {"url": PICTURE}},
            {"type": "image_url", "image_url": {"url": ADDRESS}},
        ]
    plain = next(request for request in server.requests if "a bare one" in str(request.messages))
    assert plain.messages[1]["content"] == "a bare one"
    first, second = lab.lines()
    assert first["key"] == content_key("what is it?", images=[PICTURE, ADDRESS]) + "#0"
    assert second["key"] == content_key("a bare one") + "#0"
    assert first["conversations"][0]["value"] == "what is it?"
    assert json.loads(first["metadata"]["row"]) == {"images": [PICTURE, ADDRESS]}
    lab.assert_sound()


@pytest.mark.parametrize(
    ("images", "text"),
    [
        ([{"bytes": "…"}], '"images" takes a list of addresses'),
        (["cat.jpg"], '"cat.jpg" is no picture that can be sent'),
        ("data:text/html;base64,aGk=", "is no picture that can be sent"),
        (["data:image/png;base64,no base64!"], "is no picture that can be sent"),
    ],
)
def test_what_is_no_picture_is_a_bad_row(lab: Lab, server: ModelServer, images: Any, text: str) -> None:
    lab.use_server(server.url)
    lab.write_rows([{"prompt": "what is it?", "images": images}])
    result = lab.run()
    assert (result.code, text in result.err) == (2, True), result.err
    assert not server.requests
