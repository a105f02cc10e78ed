"""What a backend without images says of images."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class NoImages:
    """The image part of `Backend`, for one whose sandboxes are made from none."""

    async def fetch(self, image: str) -> str:  # noqa: ARG002 - the contract's
        """There is nothing to wait for."""
        return ""

    def prefetch(self, images: Iterable[str]) -> None:
        """There is nothing to get."""

    async def images_present(self, images: Iterable[str]) -> dict[str, bool]:
        """None is here."""
        return dict.fromkeys(images, False)
