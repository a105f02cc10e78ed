"""What the server on loopback answers in flow tests: some tool turns, then an answer; never random."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.servers import Answer, ModelServer, Request, says

if TYPE_CHECKING:
    from collections.abc import Callable


def turns(count: int, *, delay_s: float = 0.0, reasoning: str = "because") -> Callable[[Request], Answer]:
    """`count` model calls a prompt: all but the last call `terminal`."""

    def respond(request: Request) -> Answer:
        turn = request.turn
        if turn >= count - 1:
            return says(f"done: {request.prompt[:40]}", reasoning=reasoning, delay_s=delay_s)
        command = f"echo {turn} >> log; cat log"
        return says("", calls=[("terminal", {"command": command})], reasoning=reasoning, delay_s=delay_s)

    return respond


def conversations(server: ModelServer) -> Counter[str]:
    """Prompt -> how often a conversation about it was begun."""
    return Counter(request.prompt for request in server.requests if request.turn == 0)
