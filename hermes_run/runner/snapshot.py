"""`spec.yaml` in the run directory: the effective spec, and what the run remembers of earlier ones."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import yaml

from hermes_run import __version__
from hermes_run.core.keys import canonical_json, digest
from hermes_run.errors import SpecChanged
from hermes_run.formats.hermes import IMPORTED
from hermes_run.spec.effective import load_effective
from hermes_run.spec.fingerprint import difference, fingerprint, work_fields
from hermes_run.store import layout
from hermes_run.store.disk import replace_file

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_run.spec.model import Settings, Spec
    from hermes_run.store.journal import JournalView

KEY = "x-hermes-run"
"""Where the run's own words stand in spec.yaml, so that the file stays a valid spec."""


def judgement(spec: Spec) -> str:
    """Fingerprint of what judges kept records."""
    filters = {
        "require_reasoning": spec.filters.require_reasoning,
        "reject_unknown_tools": spec.filters.reject_unknown_tools,
    }
    return digest(canonical_json({"filters": filters}))


class Snapshot:
    """The work fingerprint of a spec, against what a run directory remembers.

    Attributes:
        fields: dotted name -> value, what `work` is made of.
        work: the fingerprint.
    """

    def __init__(self, spec: Spec, settings: Settings) -> None:
        self._spec = spec
        self.fields = work_fields(spec, settings)
        self.work = fingerprint(self.fields)

    def check(self, folder: Path, journal: JournalView, *, has_entries: bool, accept: bool) -> list[str]:
        """Compare with what the run directory remembers; warnings for what was accepted.

        Entries taken over from the predecessor have no fingerprint: beside them any spec may begin.
        Raises SpecChanged, field by field, when the fingerprint is another one and `accept` is off.
        """
        known = remembered(folder)
        old = known.get("work_fields")
        if not has_entries or known.get("work") == self.work:
            return []
        works = {entry.work for entry in journal.entries()}
        if works == {IMPORTED} or (not known and works <= {IMPORTED, self.work}):
            return []  # the latter: its spec.yaml is lost, and each entry remembers the fingerprint
        changed = difference(old, self.fields) if isinstance(old, dict) else {}
        lines = [f"  {name}: {show(a)} -> {show(b)}" for name, (a, b) in sorted(changed.items())]
        if not lines:
            why = (
                "it was made of manifests alone"
                if "made_of" in known
                else "its spec.yaml is missing or damaged"
            )
            lines = [f"  (the run directory does not remember its fields: {why})"]
        if accept:
            return [
                "going on although the work fingerprint changed; what is pending runs under the new spec:"
                + "".join(f"\n{line}" for line in lines)
            ]
        raise SpecChanged(
            f"{folder}: its entries were made with another spec:\n" + "\n".join(lines) + "\n"
            "Go on under the new one for what is pending: --accept-spec-change. Run all anew: --fresh. "
            "Or give this spec another run_name"
        )

    def is_judged_otherwise(self, folder: Path) -> bool:
        """Whether kept records were judged by other filters, or by nobody knows which."""
        return remembered(folder).get("judgement") != judgement(self._spec)

    def write(self, folder: Path) -> None:
        """Write spec.yaml; after this the run directory remembers this spec."""
        effective = load_effective(self._spec)
        effective[KEY] = {
            "version": __version__,
            "work": self.work,
            "judgement": judgement(self._spec),
            "git": git_commit(self._spec),
            "python": platform.python_version(),
            "packages": {name: package_version(name) for name in ("openai", "msgspec", "xxhash")},
            "work_fields": self.fields,
        }
        text = yaml.dump(effective, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=110)
        path = folder / layout.SPEC
        data = (_HEADER + text).encode()
        if not path.exists() or path.read_bytes() != data:
            replace_file(path, data)


_HEADER = """\
# The effective spec of this run. It can be run as it is; a part's with --shard and the run_name of the whole.
"""


def remembered(folder: Path) -> dict[str, Any]:
    """What spec.yaml says of the run, or {} when it is missing or damaged."""
    known = layout.read_spec(folder).get(KEY)
    return known if isinstance(known, dict) else {}


def show(value: object) -> str:
    """A value of the fingerprint, short enough for a line."""
    text = "unset" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def package_version(name: str) -> str:
    """The installed version of a package, or "unknown"."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def git_commit(spec: Spec) -> str:
    """The commit of the repository that the spec stands in, "+changes" if it has any; "" without one."""
    if not spec.sources:
        return ""
    folder = spec.sources[0].parent
    try:
        head = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
            start_new_session=True,
        )
        if head.returncode:
            return ""
        status = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no", "--", *map(str, spec.sources)],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
            start_new_session=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return head.stdout.strip() + ("+changes" if status.stdout.strip() else "")
