"""Write the roles of plays in LEAF's format, for `data=shakespeare`: `python experiments/roles.py TEXTS FOLDER`.

TEXTS contains plays as text files in Project Gutenberg's layout: a role's name and a full stop on a separate line,
followed by its lines up to an empty line. An example is 80 consecutive characters of a role's lines, and the next
character (Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018).
"""

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path

from odt_sim.data.sources.published import CHARACTERS

LENGTH = 80  # characters before the one to predict
NAME = re.compile(r"[A-Z][A-Za-z]+( [A-Za-z]+)?\.")
STAGE_DIRECTION = re.compile(r"\[[^\]]*\]")


def roles(play: Path) -> dict[str, str]:
    """Return the lines of each role of a play, in order."""
    lines: dict[str, list[str]] = defaultdict(list)
    for speech in re.split(r"\n\s*\n", STAGE_DIRECTION.sub("", play.read_text("latin-1"))):
        name, _, said = speech.strip().partition("\n")
        if said and NAME.fullmatch(name.strip()):
            lines[name.strip().rstrip(".").title()].append(said.strip())
    return {role: "".join(c for c in "\n".join(said) if c in CHARACTERS) for role, said in lines.items()}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Write the roles of plays in LEAF's format.")
    parser.add_argument("texts", type=Path, help="folder of plays as .txt files")
    parser.add_argument("folder", type=Path, help="where roles.json is written")
    parser.add_argument("--roles", type=int, default=24, help="the roles that say most")
    parser.add_argument("--characters", type=int, default=4000, help="of each role, from its first line on")
    options = parser.parse_args()
    said = {
        f"{play.stem}: {role}": lines
        for play in sorted(options.texts.glob("*.txt"))
        for role, lines in roles(play).items()
    }
    longest = sorted(said, key=lambda role: len(said[role]), reverse=True)[: options.roles]
    users = {}
    for role in longest:
        text = said[role][: options.characters]
        starts = range(len(text) - LENGTH)
        users[role] = {"x": [text[i : i + LENGTH] for i in starts], "y": [text[i + LENGTH] for i in starts]}
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "roles.json").write_text(json.dumps({"users": longest, "user_data": users}))
    print(f"{len(users)} roles, {sum(len(each['x']) for each in users.values()):,} examples in {options.folder}")


if __name__ == "__main__":
    main()
