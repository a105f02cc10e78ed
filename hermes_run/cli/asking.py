"""What a person is shown and asked before the rest of a run."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

from hermes_run.cli.plain import columns, count_of, duration, money, number
from hermes_run.cli.report import complain

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_run.cli.progress import Quiet
    from hermes_run.runner.pilot import Confirm


_NO_FORECAST = "no forecast: no rollout of the pilot had a reply"


def forecast_lines(forecast: dict[str, Any] | None) -> list[str]:
    """A forecast (`runner.forecast`) as lines: what is expected, and the interval of 19 in 20 cases."""
    if not forecast:
        return []
    shown: dict[str, Callable[[float], str]] = {
        "calls": number,
        "tokens": number,
        "cost": money,
        "seconds": duration,
    }
    names = {"calls": "model calls", "seconds": "time"}
    rows = []
    for key, told in shown.items():
        figures = forecast[key]
        text = "unknown"
        if figures is not None:
            text = f"{told(figures['expected'])}  ({told(figures['low'])} to {told(figures['high'])})"
        rows.append((names.get(key, key), text))
    of = count_of(forecast["rollouts"], "rollout")
    head = f"forecast of {of}, from {number(forecast['from_rollouts'])} of {forecast['source']}"
    return [head, columns(rows)]


def asker(observer: Quiet, *, yes: bool) -> Confirm:
    """Shows the forecast after a pilot and asks whether to go on; with `yes` it only shows it."""

    async def ask(forecast: dict[str, Any] | None) -> bool:
        observer.pause()
        try:
            complain("\n".join(forecast_lines(forecast) or [_NO_FORECAST]))
            return yes or await confirmed("run the rest?")
        finally:
            observer.resume()

    return ask


async def confirmed(question: str) -> bool:
    """Whether the person at the terminal says yes. Without a terminal: no, and how to say yes.

    The terminal is read by the event loop, so that signals are still heard.
    """
    if not (sys.stdin and sys.stdin.isatty()):
        complain(f"{question} nobody to ask: stdin is no terminal; --yes goes on unasked")
        return False
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()
    file = sys.stdin.fileno()

    def read() -> None:
        text = os.read(file, 1000).decode("utf-8", "replace")
        if not answer.done():
            answer.set_result(text)

    loop.add_reader(file, read)
    try:
        return (await answer).strip().lower() in ("y", "yes")
    finally:
        loop.remove_reader(file)
