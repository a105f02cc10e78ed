"""hermes.yaml: what describes the machine. Which file is read, and what it says."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hermes_run.core.registry import did_you_mean
from hermes_run.spec.dialects import TRAITS
from hermes_run.spec.draft import absolute
from hermes_run.spec.endpoint import dialect_of
from hermes_run.spec.keys_and_hosts import known_variable, parse_host, parse_url
from hermes_run.spec.locate import KeyPath, Mistakes, Node, Source, shown, shown_path
from hermes_run.spec.model import Settings
from hermes_run.spec.portal import LOGIN_HOST, may_have_login
from hermes_run.spec.reading import read_file
from hermes_run.spec.shape import check_shape
from hermes_run.spec.texts import refuse_keys, refuse_variables
from hermes_run.spec.web import ENGINES

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "hermes.yaml"
_GIT_TIMEOUT_S = 10


def load_settings(config: Path | None) -> Settings:
    """The machine's settings: `config`, else ./hermes.yaml unless git tracks it, else the user's own.

    A hermes.yaml that git tracks came with a clone, and could send keys to a stranger's host: it is
    not read, and `Settings.warnings` says so.

    Args:
        config: the file of `--config`, read wherever it is from.

    Raises:
        SpecError: every mistake of the file, one a line.
    """
    if config is not None:
        return read_settings(config)
    here = Path(NAME)
    warnings: tuple[str, ...] = ()
    if here.is_file():
        doubt = _why_not_to_trust(here)
        if not doubt:
            return read_settings(here)
        warnings = (f"./{NAME} is not read: {doubt}",)
    own = user_file()
    settings = read_settings(own) if own.is_file() else Settings()
    return replace(settings, warnings=(*warnings, *settings.warnings))


def user_file() -> Path:
    """The user's own hermes.yaml, in XDG_CONFIG_HOME or ~/.config."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if Path(base).is_absolute() else Path(os.path.expanduser("~/.config"))  # noqa: PTH111
    return folder / "hermes-run" / NAME


def _why_not_to_trust(path: Path) -> str:
    """Why a hermes.yaml may be a stranger's, with the cure, or "". Asks git only inside a repository."""
    folder = Path.cwd()
    if not any((parent / ".git").exists() for parent in (folder, *folder.parents)):
        return ""
    cure = f"move it to {user_file()}, or name it: --config {path}"
    # A repository's own configuration may name a program for git to run; none is run here.
    command = ["git", "-c", "core.fsmonitor=false", "ls-files", "--error-unmatch", "--", f":(icase){path}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
            env=environment,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"git cannot say whether it tracks it ({type(error).__name__}); {cure}"
    if done.returncode == 0:
        untrack = f"git rm --cached {shlex.quote(str(path))}"
        return f"git tracks it, so it may be a stranger's; {cure}, or untrack it: {untrack}"
    if done.returncode != 1:
        reason = done.stderr.decode(errors="replace").strip().split("\n")[0]
        return f"git cannot say whether it tracks it ({reason}); {cure}"
    return ""


def read_settings(path: Path) -> Settings:
    """The settings in a file. Raises SpecError with every mistake."""
    mistakes = Mistakes()
    whole = read_file(path, Source(shown_path(path), path.parent), mistakes, may_be_empty=True)
    mistakes.stop_if_any()
    if whole is None:
        return Settings(source=path)
    told = refuse_variables(whole, mistakes)
    told |= refuse_keys(whole, mistakes, told)
    tree, bad = check_shape(whole, "settings", mistakes, told=told)
    _check_hosts(tree, mistakes)
    _check_names(tree, mistakes)
    _check_prices(tree, {path[1] for path in bad if len(path) > 1 and path[0] == "prices"}, mistakes)
    mistakes.stop_if_any()
    plain = tree.plain()
    _fill_in(plain, tree)
    settings = msgspec.convert(plain, Settings, dec_hook=lambda kind, value: kind(value))
    return replace(settings, source=path)


def _check_hosts(tree: Node, mistakes: Mistakes) -> None:
    for name, endpoint in _children(tree, "endpoints"):
        url = endpoint.child("base_url")
        problem = parse_url(url.value) if url is not None else ""
        if url is not None and isinstance(problem, str):
            mistakes.add(url.place, ("endpoints", name, "base_url"), problem)
        _check_more(name, endpoint, mistakes)
    for path, url in _web_urls(tree):
        problem = parse_url(url.value) if isinstance(url.value, str) else ""
        if isinstance(problem, str) and problem:
            mistakes.add(url.place, path, problem)
    keys = tree.child("keys")
    for index, pair in enumerate(keys.value if keys is not None else ()):
        host = pair.child("host")
        if host is not None and isinstance(host.value, str) and parse_host(host.value) is None:
            mistakes.add(
                host.place,
                ("keys", index, "host"),
                f"must be a host, such as llm.example.org or llm.example.org:8443, not {shown(host.value)}",
            )


def _web_urls(tree: Node) -> Iterator[tuple[KeyPath, Node]]:
    for path in (("web", "searxng_url"), *((("web", "urls", name)) for name in ENGINES)):
        url = tree.find(path)
        if url is not None:
            yield path, url


def _check_more(name: str, endpoint: Node, mistakes: Mistakes) -> None:
    """Replicas are addresses too; what cannot be declared, and a login that may not go there, are told."""
    replicas = endpoint.child("replicas")
    for index, url in enumerate(replicas.value if replicas is not None else ()):
        problem = parse_url(url.value) if isinstance(url.value, str) else ""
        if isinstance(problem, str) and problem:
            mistakes.add(url.place, ("endpoints", name, "replicas", index), problem)
    plain = endpoint.plain()
    dialect = plain.get("dialect") or dialect_of(plain.get("base_url") or "")
    honours = endpoint.child("honours")
    for index, what in enumerate(honours.value if honours is not None else ()):
        traits = TRAITS.get(dialect)
        if traits is not None and what.value not in traits.honours | traits.declared:
            mistakes.add(
                what.place,
                ("endpoints", name, "honours", index),
                f"endpoints of the dialect {dialect} do not take {shown(what.value)}; take it out, or write "
                "the dialect that it speaks",
            )
    login = endpoint.child("login")
    urls = [plain.get("base_url"), *(plain.get("replicas") or ())]
    if login is not None and login.value and not all(may_have_login(url or "") for url in urls):
        mistakes.add(
            login.place,
            ("endpoints", name, "login"),
            f"the login goes to {LOGIN_HOST} alone; write base_url: https://{LOGIN_HOST}/v1, or name a "
            "variable with api_key_env",
        )


def _check_prices(tree: Node, told: set[str | int], mistakes: Mistakes) -> None:
    """A price without one of its figures would make that part of a call free of charge.

    `told` are those with a mistake that is noted already, perhaps in the name of a figure.
    """
    for name, price in _children(tree, "prices"):
        said = price.plain()
        left_out = [figure for figure in ("input", "output") if figure not in said]
        if said.get("flat") or not left_out or name in told:
            continue
        if len(left_out) == 1:
            what = f"says no price of the {left_out[0]}; add {left_out[0]}: …"
            how = "USD per million tokens, 0 if it costs nothing"
        else:
            what = "says no price; add input: … and output: …"
            how = "USD per million tokens"
        mistakes.add(price.place, ("prices", name), f"{what} ({how}), or flat: true for a subscription")


def _check_names(tree: Node, mistakes: Mistakes) -> None:
    urls = tree.find(("web", "urls"))
    for name in urls.value if urls is not None else ():
        if name not in ENGINES:
            hint = did_you_mean(name, ENGINES) or f"; known: {', '.join(ENGINES)}"
            place = tree.place_of(("web", "urls", name))
            mistakes.add(place, ("web", "urls", name), f"there is no engine {shown(name)}{hint}")
    known = [name for name, _ in _children(tree, "endpoints")]
    for section in ("vision", "images", "speech"):
        path: KeyPath = (section, "endpoint")
        node = tree.find(path)
        if node is not None and node.value is not None and node.value not in known:
            hint = did_you_mean(node.value, known) or f"; known: {', '.join(known) or 'none'}"
            mistakes.add(node.place, path, f"there is no endpoint {shown(node.value)} in this file{hint}")


def _children(tree: Node, name: str) -> Iterator[tuple[str, Node]]:
    node = tree.child(name)
    yield from (node.value if node is not None else {}).items()


def _fill_in(plain: dict[str, Any], tree: Node) -> None:
    """What hangs on other values: an endpoint's dialect and key variable, absolute paths."""
    for endpoint in plain.get("endpoints", {}).values():
        endpoint["dialect"] = endpoint.get("dialect") or dialect_of(endpoint["base_url"])
        if "api_key_env" not in endpoint and not endpoint.get("login"):
            endpoint["api_key_env"] = known_variable(endpoint["base_url"])
    cache = tree.find(("sandbox", "image_cache"))
    if cache is not None and cache.value is not None:
        plain["sandbox"]["image_cache"] = absolute(cache.place.source.folder, cache.value)
