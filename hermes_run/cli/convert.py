"""`hermes-run convert -- FLAGS`: the spec that is equal to a command line of the predecessor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hermes_run.cli.parser import Parser
from hermes_run.cli.plain import as_json
from hermes_run.cli.report import complain, say
from hermes_run.core.text import command_line
from hermes_run.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_run.cli.report import Trouble

_WITH_VALUE = ("-o", "--out")
_OWN = ("--json", "-h", "--help", *_WITH_VALUE)


def main(words: Sequence[str], _trouble: Trouble) -> int:
    """Print the spec; what has no equal is named there and on stderr."""
    own, old = _parted(list(words))
    parser = Parser(
        "convert",
        "Print the run spec that is equal to a command line of hermes-agent's batch runner, commented where "
        "something is another thing here. `python batch_runner.py` may stand in front, or be left out.",
    )
    parser.usage = (
        "hermes-run convert [-o FILE] -- [python batch_runner.py] --dataset_file=FILE --batch_size=N …"
    )
    parser.add_argument(
        "--json", action="store_true", help="the spec as one JSON object, with what has no equal"
    )
    parser.add_argument("-o", "--out", metavar="FILE", help="write the spec into a new file")
    arguments = parser.parse(own)

    from hermes_run.spec.flags import spec_from_flags
    from hermes_run.spec.layers import read_layers
    from hermes_run.spec.locate import Mistakes
    from hermes_run.spec.old_commands import read_command, write_spec
    from hermes_run.spec.shape import check_shape

    command = read_command(old)
    if "list_distributions" in command.own and not command.flags:
        say("# --list_distributions is a command here:\n#   hermes-run distributions")
        return 0
    if command.missing:
        unknown = "".join(f"\n  not known: {text}" for text in command.unknown)
        raise UsageError(
            f"the command line lacks {', '.join(command.missing)}: there is no run without{unknown}\n"
            "  usage: hermes-run convert -- --dataset_file=FILE --batch_size=N --run_name=NAME …"
        )
    if arguments.out is not None:
        command.count_paths_from(_place_for(Path(arguments.out)))
    mistakes = Mistakes()
    layers = read_layers(None, sets=(), flags=command.flags, mistakes=mistakes)
    if layers is not None:  # a spec that no run would take is no equal
        check_shape(layers.tree, "run-spec", mistakes)
    mistakes.stop_if_any()
    if arguments.json:
        both = {"spec": spec_from_flags(command.flags), "no_equal": command.without_equal}
        _give(as_json(both) + "\n", arguments.out)
    else:
        _give(write_spec(command), arguments.out)
    for text in command.without_equal:
        complain(f"warning: without an equal here: {text}")
    return 0


def _place_for(path: Path) -> Path:
    """The folder of a file that is still to be made there. Raises UsageError."""
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path}: exists already; name another file, or move that away")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}")
    return path.parent


def _give(spec: str, out: str | None) -> None:
    if out is None:
        say(spec.rstrip("\n"))
        return
    from hermes_run.store.disk import replace_file

    replace_file(Path(out), spec.encode())
    say(f"wrote {out}\nnext: {command_line('validate', out)}")


def _parted(words: list[str]) -> tuple[list[str], list[str]]:
    """Our options and the old command line; `--` may be left out where none of ours stands there."""
    if "--" in words:
        place = words.index("--")
        return words[:place], words[place + 1 :]
    count = 0
    while count < len(words) and words[count].partition("=")[0] in _OWN:
        count += 2 if words[count] in _WITH_VALUE else 1
    return words[:count], words[count:]
