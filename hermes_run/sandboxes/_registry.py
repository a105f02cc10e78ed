"""Asking a registry what an image is, without fetching it: its digest, and the CPUs that it is for.

Just enough of the OCI distribution protocol for that, anonymously or with a login that docker or
apptainer has stored in its file. Blocks: to be called in a thread.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NamedTuple

from hermes_run.errors import SandboxError
from hermes_run.sandboxes._images import FetchLater

_TIMEOUT_S = 15.0
_MOST = 8 << 20
"""Bytes of a manifest or of an image's configuration."""
_DEFAULT_HOST = "docker.io"
_DEFAULT_API = "registry-1.docker.io"
_DEFAULT_LOGIN = "https://index.docker.io/v1/"
_KINDS = (
    "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json,"
    " application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
)
_REFERENCE = re.compile(
    r"(?:(?P<host>(?:[a-zA-Z0-9.-]+\.[a-zA-Z0-9.-]+|localhost|\[[0-9a-fA-F:]+\])(?::[0-9]+)?|[a-zA-Z0-9-]+:[0-9]+)/)?"
    r"(?P<name>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_LOOPBACK = re.compile(r"(?:localhost|127(?:\.[0-9]+){3}|\[::1\])(?::[0-9]+)?")
_LOGIN_FILES = ("~/.apptainer/docker-config.json", "~/.docker/config.json")


class Reference(NamedTuple):
    """An image reference, taken apart."""

    host: str
    name: str
    tag: str
    digest: str

    @property
    def text(self) -> str:
        """The whole reference, the same for every way to write it."""
        return f"{self.host}/{self.name}" + (f"@{self.digest}" if self.digest else f":{self.tag}")

    def at(self, digest: str) -> str:
        """The reference to exactly what has `digest`."""
        return f"{self.host}/{self.name}@{digest}"


def parse(image: str) -> Reference:
    """Take a reference apart. Raises SandboxError(image)."""
    found = _REFERENCE.fullmatch(image)
    if found is None:
        raise SandboxError(
            f'"{image}" is no image reference; write name:tag, or host/name:tag, in small letters',
            reason="image",
        )
    host, name, digest = found["host"] or _DEFAULT_HOST, found["name"], found["digest"] or ""
    if host == _DEFAULT_HOST and "/" not in name:
        name = f"library/{name}"
    return Reference(host, name, found["tag"] or ("" if digest else "latest"), digest)


class Registry:
    """The registry of one image.

    Args:
        reference: the image.
        image: as the user wrote it, for messages.

    Every method raises FetchLater for a registry that cannot answer now, LoginNeeded, or
    SandboxError(image) for an image that does not exist.
    """

    def __init__(self, reference: Reference, image: str) -> None:
        self._reference = reference
        self._image = image
        self._authorization = ""
        self._scheme = "https"
        self._api = _DEFAULT_API if reference.host == _DEFAULT_HOST else reference.host

    @property
    def is_plain(self) -> bool:
        """Whether it speaks http, which only one on this machine may."""
        return self._scheme == "http"

    def digest(self) -> str:
        """The digest of what the reference means now."""
        with self._open("HEAD", f"manifests/{self._wanted}") as answer:
            return self._reference.digest or answer.headers.get("Docker-Content-Digest", "")

    def architectures(self) -> set[str]:
        """The CPUs that it is for, by their names in registries (`amd64`); empty when it does not say."""
        manifest = self._json(f"manifests/{self._wanted}")
        if "manifests" in manifest:
            platforms = [one.get("platform", {}) for one in manifest["manifests"]]
            return {one["architecture"] for one in platforms if one.get("os") == "linux"}
        config = self._json(f"blobs/{manifest['config']['digest']}") if "config" in manifest else {}
        return {config["architecture"]} if config.get("architecture") else set()

    @property
    def _wanted(self) -> str:
        return self._reference.digest or self._reference.tag

    def _json(self, path: str) -> dict[str, Any]:
        with self._open("GET", path) as answer:
            try:
                value = json.loads(answer.read(_MOST))
            except (ValueError, OSError, http.client.HTTPException):
                value = {}
        return value if isinstance(value, dict) else {}

    def _open(self, method: str, path: str) -> http.client.HTTPResponse:
        for _ in range(3):
            try:
                return self._request(method, path)
            except urllib.error.HTTPError as error:
                with error:
                    if error.code != 401 or self._authorization:
                        raise self._refused(error) from error
                    self._authorization = self._authorize(error.headers.get("WWW-Authenticate", ""))
            except urllib.error.URLError as error:
                if not (isinstance(error.reason, ssl.SSLError) and self._may_be_plain()):
                    raise self._unreachable(error.reason) from error
                self._scheme = "http"
            except (OSError, http.client.HTTPException) as error:
                if not self._may_be_plain():
                    raise self._unreachable(error) from error
                self._scheme = "http"
        raise LoginNeeded(self._image)

    def _may_be_plain(self) -> bool:
        return self._scheme == "https" and _LOOPBACK.fullmatch(self._reference.host) is not None

    def _request(self, method: str, path: str) -> http.client.HTTPResponse:
        url = f"{self._scheme}://{self._api}/v2/{self._reference.name}/{path}"
        request = urllib.request.Request(url, method=method, headers={"Accept": _KINDS})  # noqa: S310 - http(s)
        if self._authorization:  # never sent on to where the registry redirects
            request.add_unredirected_header("Authorization", self._authorization)
        answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=_TIMEOUT_S)  # noqa: S310
        return answer

    def _authorize(self, challenge: str) -> str:
        """The header that a registry asks for. Raises LoginNeeded."""
        login = _stored_login(_DEFAULT_LOGIN if self._api == _DEFAULT_API else self._reference.host)
        kind, _, rest = challenge.partition(" ")
        asked = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        realm = asked.pop("realm", "")
        if kind.lower() == "basic" and login:
            return f"Basic {login}"
        if kind.lower() != "bearer" or not realm.startswith(("https://", "http://")):
            raise LoginNeeded(self._image)
        url = f"{realm}?{urllib.parse.urlencode(asked)}"
        request = urllib.request.Request(url)  # noqa: S310 - http(s), seen above
        if login:
            request.add_unredirected_header("Authorization", f"Basic {login}")
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
                said = json.loads(answer.read(_MOST))
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        except ValueError:
            said = {}
        token = (said.get("token") or said.get("access_token")) if isinstance(said, dict) else ""
        if not token:
            raise LoginNeeded(self._image)
        return f"Bearer {token}"

    def _refused(self, error: urllib.error.HTTPError) -> Exception:
        if error.code in (401, 403):
            return LoginNeeded(self._image)
        if error.code == 404:
            return no_such_image(self._image)
        if error.code == 429:
            after = error.headers.get("Retry-After") or ""
            return FetchLater(too_many(self._image), float(after) if after.isdigit() else None)
        if error.code >= 500:
            return FetchLater(
                f'image "{self._image}" cannot be had: its registry fails ({error.code}); try again later'
            )
        return SandboxError(
            f'image "{self._image}" cannot be had: its registry refuses to name it ({error.code})',
            reason="image",
        )

    def _unreachable(self, why: object) -> FetchLater:
        number = (why.errno or 0) if isinstance(why, OSError) else 0
        return FetchLater(
            unreachable(self._image, os.strerror(number).lower() if number > 0 else "no connection")
        )


class LoginNeeded(SandboxError):
    """The registry gives the image to nobody unknown."""

    def __init__(self, image: str) -> None:
        super().__init__(
            f'image "{image}" cannot be had: its registry wants a login, or there is no such image; check the'
            " name, or log in with `apptainer registry login` (or `docker login`)",
            reason="image",
        )


def no_such_image(image: str) -> SandboxError:
    """What is said of an image that its registry does not know."""
    return SandboxError(
        f'image "{image}" does not exist in its registry; check the name and the tag', reason="image"
    )


def too_many(image: str) -> str:
    """What is said when a registry limits."""
    return (
        f'image "{image}" cannot be had: its registry says too many requests (429); wait, log in, or'
        " use a mirror"
    )


def unreachable(image: str, why: str) -> str:
    """What is said when a registry does not answer."""
    return (
        f'image "{image}" cannot be had: its registry does not answer ({why}); check the host in the'
        " name, and the network"
    )


def _stored_login(host: str) -> str:
    """The login that docker or apptainer keeps for a registry, as it is sent; "" for none."""
    for path in _LOGIN_FILES:
        try:
            with open(os.path.expanduser(path), encoding="utf-8") as file:
                kept = json.load(file).get("auths", {}).get(host, {}).get("auth", "")
        except (OSError, ValueError, AttributeError):
            continue
        if isinstance(kept, str) and kept:
            return kept
    return ""
