"""The moving picture of a run, and its summary. The only user of rich."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hermes_run.cli.plain import count_of, duration, money, number, printable
from hermes_run.cli.progress import Quiet
from hermes_run.cli.report import expendable, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from rich.console import RenderableType

_FRAMES_PER_S = 4
WIDEST = 100
_BAR = 16
_BETWEEN = 4  # columns between outcomes and tools
_MOST_NAMED = 8  # models or providers that served
_FRAME = 6  # columns of the panel's border and padding
_COLOURS = {
    "completed": "green",
    "partial": "yellow",
    "discarded": "magenta",
    "failed": "red",
    "invalid": "red",
    "pending": "cyan",
}


class LivePicture(Quiet):
    """An observer that draws a bar and the counts on a terminal's stderr."""

    def __init__(self, on_planned: Callable[[Path], None], console: Console | None = None) -> None:
        super().__init__(on_planned)
        self._console = console or Console(file=expendable(sys.stderr))
        self._name = ""
        self._live = Live(
            get_renderable=self._picture,
            console=self._console,
            refresh_per_second=_FRAMES_PER_S,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def planned(self, *, total: int, done: int, pending: int, run_dir: Path) -> None:
        """The plan stands: start drawing."""
        super().planned(total=total, done=done, pending=pending, run_dir=run_dir)
        self._name = run_dir.name
        self._live.start()
        self._console.show_cursor(show=True)  # a process that is killed cannot give it back

    def show_warning(self, text: str) -> None:
        """Above the picture, where it stays."""
        self._console.print(Text(f"warning: {text}", style="yellow"))

    def pause(self) -> None:
        """Take the picture away for a while."""
        self._live.stop()

    def resume(self) -> None:
        """Draw it again."""
        self._live.start()

    def close(self) -> None:
        """Take the picture away."""
        self._live.stop()

    def _picture(self) -> RenderableType:
        tally = self.tally
        percent = f"{100 * tally.done // max(1, tally.total)} %"
        bar = Table.grid(padding=(0, 1), expand=False)
        bar.add_row(
            Text(self._name, style="bold"),
            ProgressBar(total=max(1, tally.total), completed=tally.done, width=32),
            Text(f"{number(tally.done)}/{number(tally.total)}"),
            Text(percent, style="dim"),
        )
        words = [tally.phase] if tally.phase else tally.details()
        line = Text(" · ".join(words), style="dim")
        if failed := tally.failed():
            line.append(f"{' · ' if line.plain else ''}{failed}", style="red not dim")
        return Padding(Group(bar, line), (0, 1))


def show_summary(statistics: dict[str, Any], *, after: Iterable[tuple[str, str]] = ()) -> None:
    """Print the summary of a run: `statistics` is statistics.json.

    `after` are (label, text) lines below it: where things are, what to do next.
    """
    console = Console(file=expendable(sys.stdout), highlight=False)
    console.width = min(console.width, WIDEST)
    with console.capture() as captured:
        print_summary(console, statistics, after)
    lines = captured.get().splitlines()
    say("\n".join(line.rstrip() for line in lines))


def print_summary(console: Console, statistics: dict[str, Any], after: Iterable[tuple[str, str]]) -> None:
    """Print the summary on a console."""
    console.print(summary(statistics, console))
    lines = list(after)
    width = max((len(label) for label, _ in lines), default=0)
    for label, text in lines:  # never wrapped: a command has to stay one line to be copied
        console.print(
            Text(f"  {label:<{width}}  ", style="bold").append(text, style="not bold"), soft_wrap=True
        )


def summary(statistics: dict[str, Any], console: Console) -> RenderableType:
    """The panel with outcomes, tools, and the figures, for the width of `console`."""
    outcomes, tools = _outcomes(statistics, utf8=console.encoding.startswith("utf")), _tools(statistics)
    beside, under = Table.grid(padding=(0, _BETWEEN)), Table.grid()
    beside.add_row(outcomes, tools)
    for part in (outcomes, Text(), tools):
        under.add_row(part)
    needed = console.measure(outcomes).maximum + _BETWEEN + console.measure(tools).maximum
    grid = beside if needed + _FRAME <= console.width else under
    return Panel(
        Group(grid, Text(), _figures(statistics)),
        title=Text(f"{statistics['run_name']}", style="bold"),
        title_align="left",
        subtitle=Text(f"{statistics['model']}", style="dim"),
        subtitle_align="right",
        padding=(1, 2),
        border_style="dim",
        expand=False,
    )


def _outcomes(statistics: dict[str, Any], *, utf8: bool) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="crop", min_width=1)  # rich cuts its neighbours when it is empty
    outcomes: dict[str, int] = statistics["outcomes"]
    total = max(1, sum(outcomes.values()))
    table.add_row(Text("outcomes", style="bold"), "", "")
    for name, count in outcomes.items():
        if not count and name in ("invalid", "pending"):
            continue
        style = _COLOURS[name] if count else "dim"
        table.add_row(
            Text(name, style=style), number(count), Text(_bar(count / total, utf8=utf8), style=style)
        )
        reasons = statistics.get(name, {})
        for reason, part in reasons.items() if isinstance(reasons, dict) else ():
            table.add_row(Text(f"  {reason}", style="dim"), Text(number(part), style="dim"), "")
    return table


def _bar(share: float, *, utf8: bool) -> str:
    if not utf8:
        return "#" * max(round(share * _BAR), share > 0)
    eighths = max(round(share * _BAR * 8), share > 0)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _tools(statistics: dict[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    used = {name: tool for name, tool in statistics["tool_statistics"].items() if tool["count"]}
    table.add_row(Text("tools", style="bold"), Text("calls", style="dim"), Text("success", style="dim"))
    for name, tool in sorted(used.items(), key=lambda item: (-item[1]["count"], item[0])):
        rate = tool["success_rate"]
        style = "green" if rate == 100 else "yellow" if rate >= 50 else "red"
        table.add_row(name, number(tool["count"]), Text(f"{rate:.1f} %", style=style))
    if not used:
        nothing = "unknown" if _lacks_records(statistics) else "none was called"
        table.add_row(Text(nothing, style="dim"), "", "")
    return table


def _lacks_records(statistics: dict[str, Any]) -> bool:
    """Whether the entries tell of turns and no trajectory does: those came from manifests alone."""
    outcomes, turns = statistics["outcomes"], statistics["turns"]["total"]
    kept = sum(outcomes[name] for name in ("completed", "partial", "discarded"))
    return bool(kept and turns and not statistics["reasoning_statistics"]["total_assistant_turns"])


def _figures(statistics: dict[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    for label, text in _figure_lines(statistics):
        table.add_row(Text(label, style="bold"), Text(text))
    return table


def _figure_lines(statistics: dict[str, Any]) -> Sequence[tuple[str, str]]:
    reasoning, tokens = statistics["reasoning_statistics"], statistics["tokens"]
    turns = reasoning["total_assistant_turns"]
    nothing = "unknown: no trajectory is here" if _lacks_records(statistics) else "no turns"
    coverage = f"{reasoning['coverage']:.1f} % of {count_of(turns, 'assistant turn')}" if turns else nothing
    spent = (
        f"{number(tokens['total_tokens'])}  (prompt {number(tokens['prompt_tokens'])}, "
        f"completion {number(tokens['completion_tokens'])})"
    )
    if missing := tokens.get("calls_without_usage"):
        spent += f"; {count_of(missing, 'call')} reported none"
    cost = money(statistics["cost"])
    if statistics["cost"] is not None and statistics.get("cost_unknown"):
        cost += f", and of {number(statistics['cost_unknown'])} unknown"
    if statistics.get("cost_estimated"):
        cost += f" ({number(statistics['cost_estimated'])} estimated)"
    return (
        *_drift(statistics),
        ("reasoning", coverage),
        ("tokens", spent),
        ("cost", cost),
        ("duration", duration(statistics["duration_seconds"])),
    )


def _drift(statistics: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Who served, where that was not the model asked for alone, or more than one provider."""
    models, providers = statistics["served_models"], statistics.get("served_providers", {})
    if models and list(models) != [statistics["model"]]:
        yield "served by", _most(models)
    if len(providers) > 1 or any("," in name for name in providers):
        yield "providers", _most(providers)


def _most(counts: dict[str, int]) -> str:
    """Those with the highest counts; several in one rollout stand together."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = [
        f"{printable(name).replace(',', ' + ')} {number(count)}" for name, count in ordered[:_MOST_NAMED]
    ]
    more = len(ordered) - len(shown)
    return ", ".join(shown) + (f", and {number(more)} more" if more else "")


def can_redraw() -> bool:
    """Whether stderr, which is a terminal, is one that can move its cursor."""
    return not Console(stderr=True).is_dumb_terminal


def shows_colours() -> bool:
    """Whether stdout, which is a terminal, shows colours, and no NO_COLOR forbids it."""
    console = Console()
    return console.color_system is not None and not console.no_color
