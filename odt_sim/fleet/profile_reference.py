"""Print the reference of device profiles as Markdown: `python -m odt_sim.fleet.profile_reference`."""

from odt_sim.declarations import Settings, declared
from odt_sim.fleet.profile import FORMAT_VERSION, DeviceProfile, Timing


def page() -> str:
    """Return the reference page."""
    return "\n".join(
        [
            "# Device profiles",
            "",
            "`odt-sim phone` writes what a phone measured to `profiles/NAME.json`: one object with `format_version` "
            f"{FORMAT_VERSION} and the keys below. `odt_sim.fleet.profile.DeviceProfile` reads and checks it.",
            "",
            *_table(DeviceProfile),
            "",
            "## Timings",
            "",
            "`timings` holds an object for each of `train` and `infer`.",
            "",
            *_table(Timing),
        ]
    )


def _table(kind: type[Settings]) -> list[str]:
    rows = [
        f"| `{each.key.rpartition('.')[2]}` | {each.kind or 'an object'} | {each.text} |" for each in declared(kind)
    ]
    return ["| key | type | content |", "|---|---|---|", *rows]


if __name__ == "__main__":
    print(page())
