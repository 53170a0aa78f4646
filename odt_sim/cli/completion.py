"""The command `odt-sim completion`: completion of commands, groups, options and keys in a shell."""

import argparse
from collections.abc import Sequence

from odt_sim.cli.main import COMMANDS
from odt_sim.cli.new import RUNS

FLAGS = {
    "run": ("-m", "--config-dir", "--cfg"),
    "report": ("-o", "--best", "--against", "--target", "--metric", "--csv", "--latex"),
    "export": ("-o",),
    "deflex": ("--batch-size", "--no-check"),
    "join": ("bottleneck=", "train_head=", "optimizer=", "initialize="),
    "inspect": ("--html",),
    "deploy": ("--device", "--user", "--all", "--global", "--new", "--format", "-o"),
    "phone": ("--host", "--port", "--assets", "--certificate", "--key"),
    "watch": ("--host", "--port"),
    "doctor": ("--environment", "--json", "--signature", "--flex-python"),
}
"""The options of each command except `--help`, listed here because importing the commands' parsers takes too long."""

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
"""The choices for the first argument, by command."""
OVERRIDDEN = ("run", "export", "tune", "benchmark")
"""The commands that accept overrides."""


def completion(arguments: Sequence[str]) -> int:
    """Print a shell's script, or the completions of a line, and return the exit code."""
    parser = argparse.ArgumentParser(
        "odt-sim completion", usage="%(prog)s [-h] SHELL", description="Print the completion script for a shell."
    )
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("shell", nargs="?", choices=SCRIPTS, metavar="SHELL", help=", ".join(SCRIPTS))
    choice.add_argument("--query", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.shell:
        print(SCRIPTS[options.shell], end="")
    else:
        _, *words = f"{options.query}|".split()  # the mark preserves an empty last word
        print("\n".join(candidates([*words[:-1], words[-1].removesuffix("|")])))
    return 0


def candidates(words: Sequence[str]) -> list[str]:
    """Return the candidates for the last of the words after `odt-sim`."""
    *before, word = words
    if not before:
        options = [*COMMANDS, "--help", "--version"]
    elif before[0] in CHOICES:
        options = [*CHOICES[before[0]], "--help"] if len(before) == 1 else []
    else:
        options = [*FLAGS.get(before[0], ()), "--help"]
        if before[0] in OVERRIDDEN and not word.startswith("-"):
            from odt_sim.cli.override_candidates import of_command  # imports Hydra, which is slow

            options += of_command(before[0], before[1:], word)
    return sorted({option for option in options if option.startswith(word)})
