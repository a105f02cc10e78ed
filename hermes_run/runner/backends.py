"""Which sandbox backend a prompt gets. Contract, section 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_run.core.registry import BACKENDS, load
from hermes_run.errors import BackendMissing, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hermes_run.core.contracts import Backend
    from hermes_run.dataset.plan import Plan
    from hermes_run.spec.model import Settings, Spec


def backend_name(spec: Spec, settings: Settings, image: str) -> str:
    """The backend of a prompt whose own image is `image` ("" for none).

    `auto` takes the container backend that hermes.yaml prefers when there is an image, else bubblewrap.
    """
    if spec.sandbox.backend != "auto":
        return spec.sandbox.backend
    return settings.sandbox.container if image or spec.sandbox.image else "bubblewrap"


def make_backends(spec: Spec, settings: Settings, plan: Plan) -> dict[str, Backend]:
    """The backends that the plan needs, by name, not yet checked.

    Raises UsageError (exit 2) for an image where the backend uses none, for a backend that needs an
    image where there is none, and for a backend that is not available yet.
    """
    kinds: dict[str, Any] = {}
    for image in (*plan.images, *([""] if plan.without_image or not plan.images else [])):
        name = backend_name(spec, settings, image)
        where = f"{plan.path}:{plan.first_image_line[image]}: " if image else ""
        if name not in kinds:
            if image and name in BACKENDS and not BACKENDS[name].path:
                raise UsageError(
                    f'{where}the row names the image "{image}", and the backend {name} that it needs is not '
                    "available yet in this version of hermes-run; leave the image out"
                )
            kinds[name] = load("sandbox backend", BACKENDS, name)
        uses_images = kinds[name].uses_images
        if image and not uses_images:
            raise UsageError(
                f'{where}the row names the image "{image}", and sandbox.backend is {name}, which uses no '
                "images; set sandbox.backend to docker, singularity or modal, or leave the image out"
            )
        if uses_images and not image and not spec.sandbox.image:
            raise UsageError(
                f"sandbox.backend is {name}, and there are rows without an image; set sandbox.image"
            )
    return {name: kind(spec.run_name, settings) for name, kind in kinds.items()}


async def check_backends(spec: Spec, backends: Mapping[str, Backend]) -> dict[str, tuple[str, ...]]:
    """What each backend cannot promise here. Raises BackendMissing with the cure."""
    missing = {}
    for name, backend in backends.items():
        try:
            missing[name] = await backend.check()
        except BackendMissing as error:
            if spec.sandbox.backend == "auto":
                raise BackendMissing(
                    f"{error}\nsandbox.backend is auto, which never falls back to running on the host. If "
                    "you trust what the model will do, say so: --set sandbox.backend=local"
                ) from error
            raise
    return missing


def warnings_of_backends(missing: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """What a person should know of backends that work: backend -> what it cannot promise here."""
    for name, limits in missing.items():
        if name == "local":
            yield (
                "sandbox.backend is local: what the model runs, it runs as you on this machine, without a "
                f"sandbox. Not limited: {', '.join(limits)}"
            )
        elif limits:
            yield f"sandbox.backend is {name}, which cannot limit here: {', '.join(limits)}"
