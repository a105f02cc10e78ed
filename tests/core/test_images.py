"""Which texts name an image."""

from __future__ import annotations

import pytest

from hermes_run.core.images import is_local, plain_reference


@pytest.mark.parametrize(
    "image",
    [
        "alpine",
        "python:3.12-slim",
        "a/b_c/d__e-f.g:v1.0_x",
        "127.0.0.1:5000/a/b:1",
        "[::1]:5000/a",
        "Registry.Example.org/a",
        "ghcr.io/org/name@sha256:" + "0" * 64,
        "name:tag@sha256:" + "a" * 64,
        "sha256:" + "f" * 64,
        "localhost/x",
    ],
)
def test_references_are_taken_as_they_are(image: str) -> None:
    assert plain_reference(image) == image == plain_reference(f"docker://{image}")
    assert not is_local(image)


@pytest.mark.parametrize(
    "image",
    [
        "",
        "a b",
        "Upper:case",
        "a:",
        "a:b:c",
        "a//b",
        "-a",
        "a/../b",
        "a:" + "t" * 129,
        "n" * 256,
        "a@sha256:12",
        "a;rm -rf /",
        "a\nb",
        "ü",
        "oras://a/b",
        "$(x)",
    ],
)
def test_what_is_no_reference_is_refused_with_an_example(image: str) -> None:
    with pytest.raises(ValueError, match="registry reference such as python"):
        plain_reference(image)


@pytest.mark.parametrize("image", ["/", "/etc", "./x", "../x", "~/x", "x.sif", "sub/x.sif", ".", "file:///x"])
def test_paths_are_told_from_references(image: str) -> None:
    assert is_local(image)
