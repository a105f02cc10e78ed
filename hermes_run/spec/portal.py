"""The login of Nous Portal that `hermes setup --portal` left: read where hermes.yaml says so, never changed.

hermes keeps it in auth.json of its own folder (HERMES_HOME, else ~/.hermes) and renews it when it is used;
a run that finds it expired says so.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hermes_run.errors import KeyMissing
from hermes_run.spec.keys_and_hosts import parse_url

LOGIN_HOST = "inference-api.nousresearch.com"
"""The one host that the login is sent to (beside loopback)."""

_CURE = "log in again: hermes setup --portal"
_KEYS = (("agent_key", "agent_key_expires_at"), ("access_token", "expires_at"))
"""What the file may hold, the best first, each with when it ends (ISO 8601)."""


def may_have_login(url: str) -> bool:
    """Whether the login may be sent to an address."""
    address = parse_url(url)
    if isinstance(address, str):
        return False
    return address.is_loopback or (
        address.host == LOGIN_HOST and address.scheme == "https" and address.port == 443
    )


def login_file() -> Path:
    """Where hermes keeps its logins."""
    home = os.environ.get("HERMES_HOME", "")
    folder = Path(home) if home else Path(os.path.expanduser("~/.hermes"))  # noqa: PTH111 - never raises
    return folder / "auth.json"


def read_login(now: datetime | None = None) -> str:
    """The key of the login. Raises KeyMissing, which says why there is none."""
    path = login_file()
    try:
        whole = json.loads(path.read_bytes())
    except OSError as error:
        raise KeyMissing(
            f"the login of Nous Portal cannot be read: {path}: {error.strerror}; {_CURE}"
        ) from None
    except (ValueError, RecursionError):
        raise KeyMissing(f"the login of Nous Portal cannot be read: {path} is no JSON; {_CURE}") from None
    state: Any = whole
    for name in ("providers", "nous"):
        state = state.get(name) if isinstance(state, dict) else None
    if not isinstance(state, dict):
        raise KeyMissing(f"{path} holds no login of Nous Portal; {_CURE}")
    now = now or datetime.now(UTC)
    found = [(state.get(key), state.get(end)) for key, end in _KEYS]
    keys = [(key, end) for key, end in found if isinstance(key, str) and key.strip()]
    for key, end in keys:
        if not _is_over(end, now):
            return str(key)
    why = "has expired" if keys else "holds no key"
    raise KeyMissing(f"the login of Nous Portal in {path} {why}; start hermes once, or {_CURE}")


def _is_over(end: Any, now: datetime) -> bool:
    """Whether a moment is past; one that cannot be read is not."""
    try:
        moment = datetime.fromisoformat(end)
    except (TypeError, ValueError):
        return False
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) <= now
