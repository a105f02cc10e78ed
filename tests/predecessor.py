"""Run directories as the predecessor leaves them, with its known faults, for tests of the way in.

::

    old = Old(folder)                     # its run directory is old.run_dir, its dataset old.dataset
    old.write(prompts(300))               # every row has a record, but for what the faults take
    assert old.expected["completed"] == ...

Faults are placed, never random, so that a test can say what has to become of each row.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_run.core.registry import TOOLS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

OTHER_TOOLS = tuple(f"their_tool_{n}" for n in range(79 - len(TOOLS)))
"""What brings the names in its tool_stats to 79."""
THEIRS = "their_tool_0"
INVENTED = "make_coffee"


def prompts(count: int) -> list[str]:
    return [f"[row {n}] write {n} into a file, then say «ø{n}»" for n in range(count)]


def system_turn() -> str:
    tools: list[dict[str, Any]] = [
        {"name": name, "description": "", "parameters": {}, "required": None} for name in ("terminal", THEIRS)
    ]
    return f"Call tools within <tool_call> tags.\n<tools>\n{json.dumps(tools)}\n</tools>\nNothing else."


def think(text: str) -> str:
    return f"<think>\n{text}\n</think>\n" if text else "<think>\n</think>\n"


def call(name: str, arguments: Mapping[str, Any]) -> str:
    payload = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{payload}\n</tool_call>"


def response(call_id: str, name: str, content: Any) -> str:
    payload = json.dumps({"tool_call_id": call_id, "name": name, "content": content}, ensure_ascii=False)
    return f"<tool_response>\n{payload}\n</tool_response>"


def conversation(
    prompt: str, tools: Sequence[str] = ("terminal",), *, reasoning: str = "I look."
) -> list[Any]:
    """A turn that calls `tools`, all their results in one turn, and an answer."""
    calls = "\n".join(call(name, {"command": f"echo {place}"}) for place, name in enumerate(tools))
    results = "\n".join(
        response(f"call_{place}", name, {"output": f"{place}\n", "exit_code": 0, "error": None})
        for place, name in enumerate(tools)
    )
    turns = [("system", system_turn()), ("human", prompt), ("gpt", f"{think(reasoning)}On it.\n{calls}")]
    turns += [("tool", results), ("gpt", f"{think('')}Done: {prompt}")]
    return [{"from": speaker, "value": value} for speaker, value in turns]


def line(index: int, prompt: str, batch: int, tools: Sequence[str] = ("terminal",), **changes: Any) -> str:
    """One line of a batch file."""
    reasoning = changes.pop("reasoning", "I look.")
    counts = {name: tools.count(name) for name in (*TOOLS, *OTHER_TOOLS)}
    counts |= {name: tools.count(name) for name in tools}
    record = {
        "prompt_index": index,
        "conversations": conversation(prompt, tools, reasoning=reasoning),
        "metadata": {
            "batch_num": batch,
            "timestamp": f"2026-01-15T10:30:00.{index:06}",
            "model": "old/model",
        },
        "completed": True,
        "partial": False,
        "api_calls": 2,
        "toolsets_used": ["terminal"],
        "tool_stats": {name: {"count": n, "success": n, "failure": 0} for name, n in counts.items()},
        "tool_error_counts": dict.fromkeys(counts, 0),
    }
    return json.dumps(record | changes, ensure_ascii=False)


@dataclass
class Old:
    """A folder with a dataset and a run directory of the predecessor's.

    Attributes:
        expected: prompt -> what has to become of its row: completed, partial, discarded, or pending.
    """

    folder: Path
    batch_size: int = 10
    expected: dict[str, str] = field(default_factory=dict)

    @property
    def run_dir(self) -> Path:
        return self.folder / "old" / "my_run"

    @property
    def dataset(self) -> Path:
        return self.folder / "prompts.jsonl"

    def write_dataset(self, rows: Sequence[str | Mapping[str, Any]]) -> None:
        objects = [{"prompt": row} if isinstance(row, str) else dict(row) for row in rows]
        self.folder.mkdir(parents=True, exist_ok=True)
        self.dataset.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in objects))

    def write_files(self, files: Mapping[str, bytes | str]) -> None:
        self.run_dir.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            (self.run_dir / name).write_bytes(data)

    def write(self, rows: Sequence[str]) -> None:
        """A run that was killed, resumed and finished, over at least 100 rows that all differ.

        Of every hundred rows: 7 torn and glued to the next line, 19 torn at the end of a file, 20 and
        21 on one line, 30 written twice, 40 with an invented tool, 41 with a tool of theirs, 50 partial,
        51 out of turns, 60 discarded and marked done, 61 a dead provider's (no assistant turn), 62
        without reasoning all the same, 70 to 79 with the index of another row, 90 to 99 never run.
        """
        self.write_dataset(rows)
        files: dict[str, list[str]] = {}
        done: list[int] = []
        for index, prompt in enumerate(rows):
            place = index % 100
            batch = index // self.batch_size if place < 80 else 0  # the resume began at 0 again
            self.expected[prompt] = "completed"
            found = files.setdefault(f"batch_{batch}.jsonl", [])
            if place < 90:
                done.append(index)
                found.append(self._written(index, place, prompt, batch))
            else:
                self.expected[prompt] = "pending"
        merged = "".join(text for _, lines in sorted(files.items()) for text in lines)
        kept = [text for text in merged.split("\n") if _is_json(text) and INVENTED not in text]
        self.write_files({name: "".join(lines) for name, lines in files.items()})
        checkpoint = {"run_name": "my_run", "completed_prompts": done, "batch_stats": {}, "last_updated": "x"}
        statistics = {"run_name": "my_run", "distribution": "terminal_only", "model": "old/model"}
        self.write_files(
            {
                "trajectories.jsonl": "".join(f"{text}\n" for text in kept),
                "checkpoint.json": json.dumps(checkpoint),
                "statistics.json": json.dumps(statistics | {"batch_size": self.batch_size}),
            }
        )

    def _written(self, index: int, place: int, prompt: str, batch: int) -> str:
        """What stands in the batch file of a row, its line's end included."""
        mute = [{"from": "system", "value": system_turn()}, {"from": "human", "value": prompt}]
        odd: dict[int, tuple[str, str]] = {
            40: ("discarded", line(index, prompt, batch, ("terminal", INVENTED))),
            41: ("completed", line(index, prompt, batch, ("terminal", THEIRS))),
            50: ("partial", line(index, prompt, batch, completed=False, partial=True)),
            51: ("partial", line(index, prompt, batch, completed=False)),
            60: ("pending", ""),
            61: ("pending", line(index, prompt, batch, (), conversations=mute, completed=False, api_calls=0)),
            62: ("discarded", line(index, prompt, batch, reasoning="")),
        }
        whole = line(index - 69 if 70 <= place < 80 else index, prompt, batch)
        self.expected[prompt], text = odd.get(place, ("completed", whole))
        if place in (7, 19):
            self.expected[prompt] = "pending"
            return text[: len(text) // 2]
        copies = 2 if place == 30 else 1
        return text if place == 20 else f"{text}\n" * copies if text else ""


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
