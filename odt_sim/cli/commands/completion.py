"""The command `odt-sim completion`: completion of commands, groups, options and keys in a shell."""

from collections.abc import Sequence
from pathlib import Path

from odt_sim.cli.command_table import COMMANDS, parsed, parser, words

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
complete -c odt-sim -n '__fish_seen_subcommand_from FILES' -F
"""

FILES = [name for name, each in COMMANDS.items() if any(a.options.get("type") is Path for a in each.arguments)]
"""The commands that take files."""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH.replace("FILES", " ".join(FILES))}


def completion(arguments: Sequence[str]) -> int:
    """Print a shell's script, or the completions of a line, and return the exit code."""
    options = parsed("completion", arguments)
    if (options.shell is None) == (options.query is None):
        parser("completion").error("expected SHELL")
    if options.shell:
        print(SCRIPTS[options.shell], end="")
    else:
        _, *typed = f"{options.query}|".split()  # the mark preserves an empty last word
        print("\n".join(candidates([*typed[:-1], typed[-1].removesuffix("|")])))
    return 0


def candidates(typed: Sequence[str]) -> list[str]:
    """Return the candidates for the last of the words after `odt-sim`."""
    *before, word = typed
    if not before:
        offered = [*COMMANDS, "--help", "--version"]
    elif before[0] not in COMMANDS:
        offered = []
    else:
        offered = words(before[0], len(before) - 1)
        if COMMANDS[before[0]].overrides and not word.startswith("-"):
            from odt_sim.cli.hydra.override_candidates import of_command  # imports Hydra, which is slow

            offered += of_command(before[0], before[1:], word)
    return sorted({each for each in offered if each.startswith(word)})
