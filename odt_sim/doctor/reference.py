"""Print the reference of the findings, in Markdown: `python -m odt_sim.doctor.reference`."""

from odt_sim.doctor.findings import Kind, kinds

HEADINGS = {
    "D1": "The file",
    "D2": "Ops and types at the border",
    "D3": "Weights and state",
    "D4": "The loss",
    "D5": "The step",
    "D6": "Inference",
}

INTRODUCTION = """# What the doctor finds

`odt-sim doctor FILE` says whether a `.tflite` file trains on bare LiteRT, with Flex ops in TensorFlow 2.19, and in a browser,
and what is wrong with it. The file only ever runs in a subprocess with time and memory limits, because LiteRT is native code
that does not validate it. Experiments take a few steps on small random examples; your own examples may reveal more.

The exit status is 0 if no finding prevents training, 1 if one does, and 2 for incorrect usage. `--json` prints everything for
other programs. Ids never change their meaning.

With `--flex-python PATH` (or the variable `ODT_SIM_FLEX_PYTHON`), the path of a Python in an environment with TensorFlow
2.19, a file that needs Flex ops runs in TensorFlow's interpreter. If the doctor does not find the signature for a role,
`--signature ROLE=NAME` names it, such as `--signature train=train_epoch`.

`odt-sim doctor --environment` checks the installation instead of a file: versions, cores, memory, the cache folder and its
size, the Ray cluster that `backend.address=auto` joins, Chromium, and each optional package that is missing, with the command
that installs it."""


def main() -> None:
    """Print the page."""
    parts = [INTRODUCTION]
    for prefix, heading in HEADINGS.items():
        parts.append(f"## {heading}")
        parts += [_section(kind) for kind in kinds() if kind.id.startswith(prefix)]
    print("\n\n".join(parts))


def _section(kind: Kind) -> str:
    prevents = " Prevents training." if kind.prevents else ""
    return f"### {kind.id}: {kind.title}\n\n{kind.explanation}{prevents}\n\n**What to do.** {kind.remedy}"


if __name__ == "__main__":
    main()
