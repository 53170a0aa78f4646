"""The commands and their arguments, from which dispatch, help and completion come.

Each command is a function of its arguments, in a module of the same name, that returns the exit code. This module imports
none of them, because completion and help must not wait for their libraries.
"""

import textwrap
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

WIDTH = 80  # characters of a line of help
RUNS: Mapping[str, str] = {"strategy": "strategy=", "model": "model=", "experiment": "+experiment="}
"""The kinds of templates of `odt-sim new`, with the beginning of the override that chooses one."""
ROLES = ("bottleneck", "train_head", "optimizer", "initialize")
"""The parts of a model for `odt-sim join`."""
FORMATS = ("float32", "float16", "int8")
"""The formats of `odt-sim deploy`, see `odt_sim.deploy.formats.FORMATS`."""
SHELLS = ("bash", "zsh", "fish")


class Argument(NamedTuple):
    """An argument, as `argparse` takes it.

    Attributes:
        names: The flags, or the name of a positional argument.
        options: The options of `add_argument`.
        exclusive: Whether exactly one of the exclusive arguments is required.
    """

    names: tuple[str, ...]
    options: Mapping[str, Any]
    exclusive: bool = False


class Command(NamedTuple):
    """A command.

    Attributes:
        summary: What it does, in one sentence without a period.
        arguments: The arguments that `argparse` parses.
        settings: Arguments of the form KEY=VALUE, each with its default and its meaning.
        further: Other arguments that its help describes.
        words: Further words that completion offers.
        overrides: Whether it accepts overrides of the configuration.
    """

    summary: str
    arguments: Sequence[Argument] = ()
    settings: Mapping[str, tuple[str, str]] = {}
    further: Mapping[str, str] = {}
    words: Sequence[str] = ()
    overrides: bool = False


def _of(*names: str, exclusive: bool = False, **options: Any) -> Argument:
    return Argument(names, options, exclusive)


def _rows(text: str) -> int:
    rows = int(text)
    if rows < 1:
        raise ValueError
    return rows


COMMANDS: Mapping[str, Command] = {
    "run": Command(
        "run an experiment; with -m a sweep: odt-sim run -m strategy=local,fedavg seed=0,1,2",
        words=("-m", "--config-dir", "--cfg"),
        overrides=True,
    ),
    "tune": Command(
        "give each strategy the same number of trials, and compare the best of each",
        settings={
            "strategy": ("", "strategies to tune and to compare"),
            "budget": ("20", "trials per strategy"),
            "seed": ("0,1,2", "seeds of the compared runs"),
            "tuning_seed": ("1000", "seed of all trials"),
            "jobs": ("1", "strategies that are tuned at the same time"),
            "output": ("", "folder; default: one in tuning/, which the same command finds again"),
            "config_dir": ("", "folder with your own options, such as DIR/strategy/mine.yaml"),
        },
        further={
            "OVERRIDE": "settings of all runs; an interval replaces the default range: "
            "train.learning_rate=tag(log,interval(0.01,1)). Settings of a strategy apply to the strategies that have them."
        },
        overrides=True,
    ),
    "benchmark": Command(
        "tune strategies on several tasks, and rank them",
        settings={
            "task": ("", "tasks; default: all in conf/experiment/benchmark, without those that lack their data"),
            "strategy": ("", "strategies; default: all in conf/strategy"),
            "budget": ("5", "trials per strategy and task"),
            "seed": ("0,1,2", "seeds of the compared runs"),
            "tuning_seed": ("1000", "seed of all trials"),
            "jobs": ("", "parallel processes; default: one per core"),
            "output": ("benchmark", "output folder; repeat the command to resume"),
            "markdown": ("", 'also write the results to this file, replacing all after its line "## Results"'),
            "config_dir": ("", "folder with your own options, such as DIR/experiment/benchmark/mine.yaml"),
        },
        further={"TASK.KEY": "a setting of one task: uci_har.data.path=uci_har", "OVERRIDE": "settings of all runs"},
        overrides=True,
    ),
    "report": Command(
        "compare runs on disk, as tables and a page",
        [
            _of("folders", nargs="+", type=Path, metavar="DIR", help="a run's folder, or one that contains runs"),
            _of("-o", "--output", type=Path, metavar="FILE", help="the page; by default report.html in DIR"),
            _of("--best", action="store_true", help="show only the configuration of each strategy that validates best"),
            _of("--against", metavar="LABEL", help="the strategy or row to compare the others with"),
            _of("--target", type=float, metavar="VALUE", help="report the rounds to this mean, such as 0.9"),
            _of("--metric", metavar="NAME", help="compare by this metric instead of the runs' first one"),
            _of("--csv", type=Path, metavar="FILE", help="write a row per configuration, for other programs"),
            _of("--latex", type=Path, metavar="FILE", help="write the tables for LaTeX with booktabs"),
        ],
    ),
    "export": Command(
        "write the configured model's .tflite, such as odt-sim export model=mnist_cnn",
        [
            _of("overrides", nargs="*", metavar="OVERRIDE", help="such as model=mnist_cnn model.batch_size=64"),
            _of("-o", "--output", type=Path, metavar="FILE", help="by default the model's name with .tflite"),
        ],
        overrides=True,
    ),
    "inspect": Command(
        "print a .tflite file's signatures, parameters and ops, or write them as a page",
        [
            _of("file", type=Path, metavar="FILE", help="a .tflite file"),
            _of("--html", type=Path, metavar="OUT", help="write a page with its graphs and weights instead"),
        ],
    ),
    "doctor": Command(
        "check whether a .tflite file trains and what is wrong with it, or what is missing here; exit status 1 if a "
        "finding prevents training",
        [
            _of("file", nargs="?", type=Path, metavar="FILE", help="a .tflite file"),
            _of(
                "--environment",
                action="store_true",
                help="instead of FILE: print versions, cores, memory, the cache, and what is missing",
            ),
            _of("--json", action="store_true", help="print JSON, for other programs"),
            _of(
                "--signature",
                action="append",
                default=[],
                metavar="ROLE=NAME",
                help="the signature of a role that the doctor does not find, such as train=train_epoch",
            ),
            _of(
                "--flex-python",
                metavar="PATH",
                help="the Python of an environment with TensorFlow 2.19, to try Flex ops (default: ODT_SIM_FLEX_PYTHON)",
            ),
        ],
    ),
    "watch": Command(
        "serve a live page of the runs in a folder, including those that start later",
        [
            _of("folder", type=Path, metavar="DIR", help="a run's folder, or one that contains runs"),
            _of("--host", default="127.0.0.1", help="the address to listen on; 0.0.0.0 for the whole network"),
            _of("--port", type=int, default=8766, help="the port, %(default)s by default; 0 for a free one"),
        ],
    ),
    "deploy": Command(
        "write a run's models for phones, to train and for inference",
        [
            _of("run", type=Path, metavar="RUN", help="the folder of a complete run"),
            _of("overrides", nargs="*", metavar="OVERRIDE", help="new path of the run's data: data.path=moved.npz"),
            _of("--device", type=int, metavar="ID", help="the model of this device's user", exclusive=True),
            _of("--user", metavar="ID", help="the model of the user with this id in the data", exclusive=True),
            _of("--all", action="store_true", help="the model of every device", exclusive=True),
            _of("--global", action="store_true", dest="shared", help="the server's model", exclusive=True),
            _of("--new", action="store_true", help="the model that a new user's phone starts from", exclusive=True),
            _of(
                "--format",
                nargs="*",
                choices=FORMATS,
                help="formats of the inference files, in addition to the trainable file; by default "
                + " ".join(FORMATS),
            ),
            _of("-o", "--output", type=Path, metavar="DIR", help="the folder to write to; by default RUN/deploy"),
        ],
    ),
    "phone": Command(
        "let phones in this network check, measure and personalize a trainable file",
        [
            _of("path", type=Path, metavar="FILE|RUN", help="a .tflite file, or the folder of a complete run"),
            _of(
                "overrides",
                nargs="*",
                metavar="OVERRIDE",
                help="the data to record FILE with, such as data=digits; random by default",
            ),
            _of("--host", default="0.0.0.0", help="the address to listen on; by default all of this machine"),
            _of("--port", type=int, default=8765, help="the port, %(default)s by default; 0 for a free one"),
            _of(
                "--assets",
                type=Path,
                metavar="DIR",
                help="where npm installed @litertjs/core; by default it comes from a CDN",
            ),
            _of("--certificate", type=Path, metavar="FILE", help="a certificate (PEM), to serve https"),
            _of("--key", type=Path, metavar="FILE", help="the certificate's key (PEM)"),
        ],
    ),
    "deflex": Command(
        "rewrite a .tflite file with Flex ops so that it trains on any LiteRT interpreter, with the same results",
        [
            _of("source", type=Path, metavar="IN", help="a .tflite file with Flex ops"),
            _of("output", type=Path, metavar="OUT", help="the file to write; it must not exist yet"),
            _of(
                "--batch-size",
                type=_rows,
                metavar="ROWS",
                help="set a fixed batch size where the file accepts any; it trains faster",
            ),
            _of(
                "--no-check",
                action="store_true",
                help="do not compare the new file with the original in TensorFlow",
            ),
        ],
    ),
    "join": Command(
        "join a model in several .tflite files without signatures into one trainable file",
        [
            _of("output", type=Path, metavar="OUT", help="the file to write; it must not exist yet"),
            _of(
                "parts",
                nargs="+",
                metavar="ROLE=FILE",
                help="bottleneck=FILE train_head=FILE optimizer=FILE, and initialize=FILE if the weights do not start "
                "at zero",
            ),
        ],
        words=[f"{role}=" for role in ROLES],
    ),
    "new": Command(
        "write a runnable template and its test to the working folder",
        [
            _of("kind", choices=tuple(RUNS), metavar="KIND", help=", ".join(RUNS)),
            _of("name", metavar="NAME", help="name of the option and the module: lowercase letters, digits and _"),
        ],
    ),
    "completion": Command(
        "print the completion script for a shell",
        [
            _of("shell", nargs="?", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS)),
            _of("--query", help=SUPPRESS),
        ],
    ),
}


def parser(name: str) -> ArgumentParser:
    """Return the parser of a command's arguments."""
    arguments = COMMANDS[name].arguments
    made = ArgumentParser(f"odt-sim {name}", description=_sentence(COMMANDS[name].summary))
    exclusive = made.add_mutually_exclusive_group(required=True) if any(each.exclusive for each in arguments) else made
    for argument in arguments:
        (exclusive if argument.exclusive else made).add_argument(*argument.names, **argument.options)
    return made


def parsed(name: str, arguments: Sequence[str]) -> Namespace:
    """Return the parsed arguments of a command; incorrect usage ends the process with the usage and code 2."""
    return parser(name).parse_intermixed_args(arguments)


def words(name: str, position: int) -> list[str]:
    """Return the flags, and the choices for the positional argument at a position, that completion offers."""
    command = COMMANDS[name]
    shown = [argument for argument in command.arguments if argument.options.get("help") != SUPPRESS]
    flags = [argument.names[0] for argument in shown if argument.names[0].startswith("-")]
    positional = [argument for argument in shown if not argument.names[0].startswith("-")]
    choices = positional[position].options.get("choices", ()) if position < len(positional) else ()
    return [*choices, *flags, *command.words, "--help"]


def usage() -> str:
    """Return the help of `odt-sim`: all commands."""
    lines = [_entry(name, command.summary) for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: odt-sim COMMAND ...\n",
            *lines,
            "\n  odt-sim COMMAND --help describes a command's arguments,",
            "  odt-sim run --help lists the groups of the configuration,",
            "  odt-sim run --cfg job prints all of it.",
            "  odt-sim --version prints the version.\n",
        ]
    )


def settings_usage(name: str) -> str:
    """Return the help of a command with arguments of the form KEY=VALUE."""
    command = COMMANDS[name]
    entries = {f"{key}={default}": text for key, (default, text) in command.settings.items()}
    lines = [_entry(key, text, 18) for key, text in {**entries, **command.further}.items()]
    title = f"usage: odt-sim {name} [KEY=VALUE ...] [OVERRIDE ...]\n\n{_sentence(command.summary)}\n"
    return "\n".join([title, *lines, ""])


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."


def _entry(name: str, text: str, width: int = 12) -> str:
    """Return a line of a list: a name, and next to it a text."""
    return textwrap.fill(
        f"{name:<{width}}{text}",
        WIDTH,
        initial_indent="  ",
        subsequent_indent=" " * (width + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )
