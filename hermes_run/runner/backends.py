"""Which sandbox backend a prompt gets. Contract, section 2."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hermes_run.core.images import is_local
from hermes_run.core.registry import BACKENDS, load
from hermes_run.errors import BackendMissing, DatasetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hermes_run.core.contracts import Backend
    from hermes_run.dataset.plan import Plan
    from hermes_run.spec.model import Settings, Spec


_MOST_NAMED = 3
_ENDING_S = 0.5
_AUTO = (
    "sandbox.backend is auto, which never falls back to running on the host. If you trust what the model "
    "will do, say so: --set sandbox.backend=local"
)
_AUTO_WITH_IMAGES = (
    "sandbox.backend is auto, which takes for prompts with an image the container backend of hermes.yaml "
    "(`sandbox: {container: docker}`, or singularity); `hermes-run doctor` says which works here"
)


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
    image where there is none, and for a backend that is not available yet; DatasetError with every image
    that is a path of this machine where that may not be.
    """
    kinds: dict[str, Any] = {}
    paths: list[str] = []
    for image in images_of_rows(plan):
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
        if uses_images:
            why = why_no_path(image or spec.sandbox.image or "", name, settings)
            paths += [where + why] if why else []
    if paths:
        raise DatasetError("\n".join([*paths, f"images that cannot be used: {len(paths)}; nothing was run"]))
    return {name: kind(spec.run_name, settings) for name, kind in kinds.items()}


def images_of_rows(plan: Plan) -> Iterator[str]:
    """The images that rows name, in dataset order, and "" when there are rows without one."""
    yield from plan.images
    if plan.without_image or not plan.images:
        yield ""


def images_by_backend(spec: Spec, settings: Settings, plan: Plan) -> dict[str, list[str]]:
    """Backend -> the images that its sandboxes are made from, in the order in which rows need them."""
    found: dict[str, dict[str, None]] = {}
    for image in images_of_rows(plan):
        used = image or spec.sandbox.image
        if used:
            found.setdefault(backend_name(spec, settings, image), {}).setdefault(used)
    return {name: list(images) for name, images in found.items()}


async def images_here(
    spec: Spec, settings: Settings, plan: Plan, backends: Mapping[str, Backend]
) -> dict[str, bool | None]:
    """Image -> whether it is here already; None where the backend cannot say. Fetches nothing."""
    found: dict[str, bool | None] = {}
    for name, images in images_by_backend(spec, settings, plan).items():
        backend = backends[name]
        try:
            found.update(await backend.images_present(images))
        except BackendMissing:
            found.update(dict.fromkeys(images, None))
        finally:
            await backend.aclose()
    return found


def why_no_path(image: str, backend: str, settings: Settings) -> str:
    """Why an image that is a path of this machine is refused; "" when it is none, or allowed."""
    if not is_local(image):
        return ""
    what = f'the image "{image}" is a path of this machine, and'
    if backend != "singularity":
        return f"{what} {backend} takes images from a registry; name one, or use the backend singularity"
    if not settings.sandbox.allow_local_images:
        return (
            f"{what} a dataset from elsewhere could name any; if you mean it, write "
            "`sandbox: {allow_local_images: true}` into your hermes.yaml"
        )
    return ""


async def check_backends(spec: Spec, backends: Mapping[str, Backend]) -> dict[str, tuple[str, ...]]:
    """What each backend cannot promise here. Raises BackendMissing with the cure."""
    missing = {}
    for name, backend in backends.items():
        try:
            missing[name] = await backend.check()
        except BackendMissing as error:
            if spec.sandbox.backend == "auto":
                has_images = any(each.uses_images for each in backends.values())
                raise BackendMissing(f"{error}\n{_AUTO_WITH_IMAGES if has_images else _AUTO}") from error
            raise
    return missing


async def leftovers_of(backends: Mapping[str, Backend]) -> list[str]:
    """What dead runs left here, for a person: backend by backend, with the cure."""
    texts = []
    for name, backend in backends.items():
        found = backend.leftovers()
        if found:  # a run that is just ending lets go of its lock before its folder is gone
            await asyncio.sleep(_ENDING_S)
            found = [each for each in backend.leftovers() if each in found]
        if found:
            whose = sorted({f"run {each.run}" if each.run else "a run that had only begun" for each in found})
            shown = ", ".join(whose[:_MOST_NAMED]) + (", …" if len(whose) > _MOST_NAMED else "")
            what = (
                f"{len(found)} sandbox{'es' if len(found) > 1 else ''}" if backend.uses_images else "folders"
            )
            texts.append(
                f"dead runs have left {what} of {name} behind ({shown}); remove them: hermes-run clean"
            )
    return texts


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
