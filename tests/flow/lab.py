"""A folder with a spec and a dataset, and the command line run on it as a user would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.flow.zygote import Run, the_zygote

SCHEDULING = ("batch_num", "timestamp")
SCHEDULED_STATISTICS = ("total_batches", "completed_at", "duration_seconds", "spent")


@dataclass
class Result:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Lab:
    """One spec in one folder. `spec` may be changed between runs."""

    folder: Path
    spec: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        base: dict[str, Any] = {
            "run_name": "r",
            "dataset": {"path": "data.jsonl"},
            "batch_size": 3,
            "workers": 4,
            "distribution": {"terminal": 100},
            "sandbox": {"backend": "bubblewrap"},
        }
        self.spec = {**base, **self.spec}

    @property
    def run_dir(self) -> Path:
        return self.folder / "data" / str(self.spec["run_name"])

    def write_rows(self, rows: list[Any], name: str = "data.jsonl") -> None:
        """Rows that are dicts become JSON lines, strings stand as they are."""
        lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def write_prompts(self, *prompts: str) -> None:
        self.write_rows([{"prompt": prompt} for prompt in prompts])

    def write_tape(self, tape: dict[str, Any]) -> None:
        (self.folder / "tape.yaml").write_text(yaml.safe_dump(tape), encoding="utf-8")
        self.spec["model"] = {"name": "scripted", "script": "tape.yaml"}

    def use_server(self, url: str) -> None:
        self.spec["model"] = {"name": "bench", "base_url": url, "api_key_env": None}

    def write_spec(self) -> Path:
        path = self.folder / "spec.yaml"
        path.write_text(yaml.safe_dump(self.spec, sort_keys=False), encoding="utf-8")
        return path

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "hermes_run", *words]

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
        return {**kept, "PYTHONPATH": str(Path(__file__).parents[2]), **self.env}

    def start(self, *words: str) -> Run:
        """Start the run, in a fork of the zygote."""
        spec = self.write_spec()
        return Run(the_zygote(), ["run", str(spec), *words], self.folder, self.environment())

    def run(self, *words: str, timeout_s: float = 120) -> Result:
        """Run the spec to its end."""
        child = self.start(*words)
        out, err = child.communicate(timeout=timeout_s)
        return Result(child.returncode or 0, out, err)

    def call(self, *words: str, timeout_s: float = 60) -> Result:
        """Any other command."""
        child = Run(the_zygote(), words, self.folder, self.environment())
        out, err = child.communicate(timeout=timeout_s)
        return Result(child.returncode or 0, out, err)

    def run_anew(self, *words: str, timeout_s: float = 120) -> Result:
        """Run the spec as a process of its own, Python's start and all."""
        done = subprocess.run(
            self.command("run", str(self.write_spec()), *words),
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def kill_after(self, seconds: float, signum: int = signal.SIGKILL, *words: str) -> Result:
        """Start it and send a signal after some seconds (it may have ended by itself before)."""
        child = self.start(*words)
        time.sleep(seconds)
        child.send_signal(signum)
        out, err = child.communicate(timeout=90)
        return Result(child.returncode or 0, out, err)

    def lines(self, name: str = "trajectories.jsonl") -> list[dict[str, Any]]:
        return read_lines(self.run_dir / name)

    def entries(self) -> dict[str, dict[str, Any]]:
        return {entry["key"]: entry for entry in self.lines("manifest.jsonl")}

    def statistics(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.run_dir / "statistics.json").read_text())
        return content

    def statuses(self) -> Counter[str]:
        return Counter(entry["status"] for entry in self.lines("manifest.jsonl"))

    def assert_sound(self) -> None:
        """`verify` finds nothing, and the ledger of section 5 holds."""
        found = self.call("verify", str(self.run_dir))
        assert found.code == 0, found.out + found.err
        plan = json.loads((self.run_dir / "plan.json").read_text())
        outcomes = self.statistics()["outcomes"]
        assert sum(outcomes.values()) == plan["rows"] * plan["selection"]["samples"] == plan["total"]

    def outputs(self) -> dict[str, Any]:
        """What equal runs have equal: scheduling fields left out, tool call ids by their order."""
        return comparable(self.run_dir)


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def comparable(run_dir: Path) -> dict[str, Any]:
    trajectories = read_lines(run_dir / "trajectories.jsonl")
    for line in trajectories:
        for name in SCHEDULING:
            del line["metadata"][name]
        ids: dict[str, int] = {}
        for turn in line["conversations"]:
            for call in turn["tool_calls"]:
                call["id"] = ids.setdefault(call["id"], len(ids))
            if turn["tool_call_id"]:
                turn["tool_call_id"] = ids.setdefault(turn["tool_call_id"], len(ids))
    statistics = json.loads((run_dir / "statistics.json").read_text())
    for name in SCHEDULED_STATISTICS:
        statistics.pop(name, None)
    return {
        "trajectories": trajectories,
        "manifest": (run_dir / "manifest.jsonl").read_text(),
        "statistics": statistics,
        "plan": json.loads((run_dir / "plan.json").read_text()),
        "tools": json.loads((run_dir / "tools.json").read_text()),
    }
