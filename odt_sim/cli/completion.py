"""The command `odt-sim completion`: complete commands, groups, options and keys in a shell."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, cast

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from odt_sim.cli.main import COMMANDS
from odt_sim.cli.new import RUNS
from odt_sim.cli.settings import COMPONENTS, DECLARED, component
from odt_sim.declarations import Settings, choices, flatten
from odt_sim.settings import ExportedModel

FLAGS = {
    "run": ("-m", "--config-dir", "--help", "--cfg"),
    "report": ("-o", "--best", "--against", "--target", "--csv", "--latex"),
    "tune": ("--help",),
    "benchmark": ("--help",),
    "export": ("-o", "--help"),
    "deflex": ("--batch-size", "--help"),
    "join": ("bottleneck=", "train_head=", "optimizer=", "initialize=", "--help"),
    "inspect": ("--html", "--help"),
    "deploy": ("--device", "--all", "--global", "--format", "-o"),
    "phone": ("--host", "--port", "--assets", "--certificate", "--key", "--help"),
    "watch": ("--host", "--port", "--help"),
    "doctor": ("--environment", "--json", "--signature", "--flex-python", "--help"),
}

BASH = r"""# eval "$(odt-sim completion bash)"
_odt_sim() {
    local IFS=$'\n' line=${COMP_LINE:0:COMP_POINT}
    local word=${line##* }
    COMPREPLY=($(odt-sim completion --query "$line" 2>/dev/null))
    # Bash starts a new word behind "=".
    [[ $word == *=* && $COMP_WORDBREAKS == *=* ]] && COMPREPLY=("${COMPREPLY[@]#"${word%=*}="}")
    [[ ${COMPREPLY[0]} == *[=.] ]] && compopt -o nospace
}
complete -o default -F _odt_sim odt-sim
"""

ZSH = r"""#compdef odt-sim
# eval "$(odt-sim completion zsh)", after compinit
_odt_sim() {
    local -a found=("${(@f)$(odt-sim completion --query "${(j: :)words[1,CURRENT]}" 2>/dev/null)}")
    compadd -S '' -- ${(M)found:#*[=.]}
    compadd -- ${found:#*[=.]}
    [[ -n $found ]] || { compset -P '*='; _files }
}
compdef _odt_sim odt-sim
"""

FISH = r"""# odt-sim completion fish | source
function __odt_sim_candidates
    set -l found (odt-sim completion --query (commandline -cp) 2>/dev/null)
    if test -n "$found"
        printf '%s\n' $found
    else if set -l parts (string split -r -m 1 = -- (commandline -ct))
        printf '%s\n' $parts[1]=(__fish_complete_path $parts[2])
    end
end
complete -c odt-sim -f -a '(__odt_sim_candidates)'
complete -c odt-sim -n '__fish_seen_subcommand_from report inspect watch deploy phone deflex join doctor' -F
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
CHOICES = {"completion": (*SCRIPTS,), "new": (*RUNS,)}
"""What the first argument of a command may be."""


def completion(arguments: Sequence[str]) -> int:
    """Print a shell's script, or the candidates for a line, and return the exit code."""
    parser = argparse.ArgumentParser("odt-sim completion", description="Print the completion script for a shell.")
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("shell", nargs="?", choices=SCRIPTS, metavar="SHELL", help=", ".join(SCRIPTS))
    choice.add_argument("--query", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.shell:
        print(SCRIPTS[options.shell], end="")
    else:
        _, *words = f"{options.query}|".split()  # the mark keeps an empty last word
        print("\n".join(candidates([*words[:-1], words[-1].removesuffix("|")])))
    return 0


def candidates(words: Sequence[str]) -> list[str]:
    """Return what the last of the words behind `odt-sim` may become."""
    *before, word = words
    if not before:
        options = [*COMMANDS, "--help", "--version"]
    elif before[0] in CHOICES:
        options = [*CHOICES[before[0]]] if len(before) == 1 else []
    else:
        options = list(FLAGS.get(before[0], ()))
        if before[0] in ("run", "export") and not word.startswith("-"):
            options += _overrides(before[1:], word)
        elif before[0] in ("tune", "benchmark") and not word.startswith("-"):
            options += _of_searches(before[0], before[1:], word)
    return sorted({option for option in options if option.startswith(word)})


def _of_searches(command: str, before: Sequence[str], word: str) -> list[str]:
    """Return the own arguments of `tune` or `benchmark`, and the overrides that it passes on to runs."""
    from odt_sim.cli.benchmark import OWN as OF_BENCHMARK
    from odt_sim.cli.benchmark import TASKS, options
    from odt_sim.cli.tune import OWN as OF_TUNE

    own = OF_TUNE if command == "tune" else OF_BENCHMARK
    tasks = options(TASKS, None) if command == "benchmark" else []
    shared = [each for each in before if each.partition("=")[0] not in {*own} - {"strategy"}]
    key, equals, _ = word.partition("=")
    task, dot, inner = word.partition(".")
    if equals and key == "task":
        return _values(word, tasks)
    if equals and own.get(key):
        return [f"{key}={own[key]}"]
    if dot and task in tasks:
        return [f"{task}.{each}" for each in _overrides([f"+{TASKS}={task}", *shared], inner)]
    found = _overrides(shared, word)
    return found if equals else [*found, *(f"{name}=" for name in own), *(f"{name}." for name in tasks)]


def _overrides(before: Sequence[str], word: str) -> list[str]:
    """Return the groups and keys, or the options or the value of the one in the word."""
    with hydra.initialize_config_module("odt_sim.conf", version_base="1.3"):
        config = _composed([override for override in before if "=" in override and "," not in override])
        settings = flatten(cast(Mapping[str, Any], OmegaConf.to_container(config)))
        key, equals, _ = word.partition("=")
        if not equals:
            added = [group for group in _options("") if group not in config]
            return [*(f"{name}=" for name in (*map(str, config), *settings)), *(f"+{group}=" for group in added)]
        values: list[Any] = _options(key.lstrip("+")) or choices(_hint(key, settings)) or [settings.get(key)]
        return _values(word, [value for value in values if value is not None])


def _values(word: str, values: Sequence[Any]) -> list[str]:
    """Return the word with each value behind its `=`, or behind the last comma of a list."""
    start = word[: 1 + max(word.rfind("="), word.rfind(","))]
    return [f"{start}{value}" for value in values]


def _hint(key: str, settings: Mapping[str, Any]) -> Any:
    """Return the type of a setting; Any if it is unknown."""
    group, _, name = key.partition(".")
    kinds: tuple[type[Settings], ...] = (*DECLARED, ExportedModel)
    declared = {key: hint for kind in kinds for key, hint in kind.hints().items()}
    found = component(group, str(settings.get(f"{group}._target_"))) if group in COMPONENTS else None
    return found.hints.get(name, Any) if found else declared.get(key, Any)


def _composed(overrides: Sequence[str]) -> DictConfig:
    try:
        return hydra.compose("config", overrides=list(overrides))
    except HydraException:
        return hydra.compose("config")


def _options(group: str) -> list[str]:
    """Return the options of a group, those of groups in it included, or the groups themselves for an empty name."""
    loader = GlobalHydra.instance().config_loader()
    inner = [name for name in loader.list_groups(group) if name != "hydra"]
    if not group:
        return inner
    return [
        *loader.get_group_options(group),
        *(f"{name}/{option}" for name in inner for option in _options(f"{group}/{name}")),
    ]
