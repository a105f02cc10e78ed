"""What a prompt leaves in its sandbox is seen by no other prompt and by no later attempt, on any backend."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.cases.places import NAMES, at, terminal_results
from tests.contracts.sandboxes import can
from tests.servers import Answer, ModelServer, Request, says

if TYPE_CHECKING:
    from pathlib import Path

    from tests.flow.lab import Lab

CANARY = "canary-7f3a9c51"
PROMPTS = tuple(f"[who{number}]" for number in range(4))
LEAVE = """cd /tmp
for file in same /tmp/same "$HOME/.profile" "$HOME/.bashrc" /dev/shm/same; do
  echo "export LEFT_BY={who}-{attempt} # {who}-{attempt}" >>"$file"
done 2>/dev/null
export LEFT_BY="${{LEFT_BY:-}}{who}-{attempt}"; alias ls='echo {who}-{attempt}'
setsid sleep 600.{mark} & echo left"""
LOOK = """echo "$LEFT_BY"; cat same /tmp/same "$HOME/.profile" "$HOME/.bashrc" /dev/shm/same 2>/dev/null
echo sleepers $(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c '^600.{mark}$')
env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; cat {secret} 2>/dev/null; ls -la / /tmp; echo looked"""


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_paths_variables_processes_and_secrets_stay_apart_also_when_tried_again(
    lab: Lab, server: ModelServer, name: str, tmp_path: Path
) -> None:
    at(lab, name)
    can(name, "files", "processes")
    secret = tmp_path / "secret.txt"
    secret.write_text(CANARY)
    mark, attempts = f"{os.getpid()}", dict.fromkeys(PROMPTS, 0)

    def respond(request: Request) -> Answer:
        who = request.prompt
        attempts[who] += request.turn == 0
        words = {"who": who, "attempt": attempts[who], "mark": mark, "secret": secret}
        if request.turn < 2:
            command = (LEAVE, LOOK)[request.turn].format(**words)
            return says("", calls=[("terminal", {"command": command})], reasoning="r", delay_s=0.3)
        return says(None) if attempts[who] == 1 else says("done", reasoning="r")

    server.respond = respond
    lab.env |= {"HERMES_CANARY": CANARY, "OPENROUTER_API_KEY": CANARY}
    lab.write_prompts(*PROMPTS)
    lab.use_server(server.url)
    assert lab.run("--json").code == 1
    assert {entry["reason"] for entry in lab.entries().values()} == {"empty_reply"}
    assert lab.run().code == 0
    for line in lab.lines():
        me, heard = line["conversations"][0]["value"], terminal_results(line)[-1]["output"]
        assert f"{me}-2" in heard
        assert "sleepers 1\n" in heard
        assert f"{me}-1" not in heard
        assert not [other for other in PROMPTS if other != me and other in heard]
        assert "looked" in heard
    for path in lab.run_dir.rglob("*"):
        assert not path.is_file() or CANARY.encode() not in path.read_bytes(), path
    lab.assert_sound()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_same_port_is_everybodys_own_without_a_network(lab: Lab, server: ModelServer, name: str) -> None:
    at(lab, name)
    can(name, "network")
    ask = """python3 -c 'import urllib.request as u; print(u.urlopen("http://127.0.0.1:8765/x").read())'"""
    tries = f"{{ {ask} || busybox wget -qO- http://127.0.0.1:8765/x; }} 2>/dev/null"
    look = f"for i in 1 2 3; do sleep 1; {tries} && break; done; echo asked"

    def respond(request: Request) -> Answer:
        serve = f"mkdir www; echo '{request.prompt}' >www/x; python3 -m http.server -d www 8765"
        command = (f"{{ {serve} || httpd -f -p 8765 -h www; }} >/dev/null 2>&1 & sleep 2; echo up", look)
        if request.turn == len(command):
            return says("done", reasoning="r")
        return says("", calls=[("terminal", {"command": command[request.turn]})], reasoning="r")

    server.respond = respond
    lab.write_prompts(*PROMPTS[:3])
    lab.use_server(server.url)
    assert lab.run().code == 0
    for line in lab.lines():
        me, heard = line["conversations"][0]["value"], terminal_results(line)[-1]["output"]
        assert me in heard
        assert not [other for other in PROMPTS if other != me and other in heard]
