"""The pages that are not in `docs/`: the README as home, the changelog, the rules, the commands and the public names.

mkdocs calls the functions named `on_...` (a hook, see mkdocs.yml).
"""

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import bagcert
from bagcert.cli.main import COMMANDS, command
from bagcert.rules import RULES

ROOT = Path(__file__).parents[1]
NAMED_PAGE = re.compile(r"`docs/([\w-]+)\.(?:md|ipynb)`")  # how files that are read on their own name a page
CELL, TAG = re.compile(r"<td>(.*?)</td>", re.DOTALL), re.compile(r"<[^>]*>")
LONG = 35  # characters from which on the text of a cell needs several lines on a phone
# What else the proofs rest on, after the rules.
FOUNDATIONS = {
    "Alerts": "bagcert.rules.alerts",
    "Two patches at once": "bagcert.rules.two_patches",
    "Views that hide the patch": "bagcert.scorers.cleanser.CleanserScorer",
    "Interval bounds": "bagcert.scorers.interval",
    "Certificates": "bagcert.rules.Certificate",
}
API = {
    "Defenses": ["load", "defend", "wrap", "cover", "Defense", "Answer"],
    "Certificates": ["certify_scores", "certified_size", "Certificate"],
    "Several answers": ["certify_top", "certify_labels", "certify_segmentation"],
    "Attacks": ["AttackSettings"],
    "Footprints": ["Footprint", "Layer"],
    "Errors": ["UsageError"],
}


def on_files(files: Files, *, config: Any) -> Files:
    for page in (home, tour, changelog, rules, commands, api):
        name = "index" if page is home else page.__name__
        files.append(File.generated(config, f"{name}.md", content=page()))
    for path in sorted((ROOT / "website" / "assets").iterdir()):
        files.append(File.generated(config, f"assets/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    return linked(markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Cells of tables that hold more than a few words are marked, so that they stay readable on a phone."""
    return CELL.sub(
        lambda cell: cell[0] if len(TAG.sub("", cell[1])) < LONG else f'<td class="sentence">{cell[1]}</td>', html
    )


def linked(text: str) -> str:
    """Pages that are named as code, `docs/threats.md`, as links."""
    return NAMED_PAGE.sub(lambda found: f"[{found[1].replace('-', ' ')}]({found[1]}.md)", text)


def home() -> str:
    """The README, without what lives only on GitHub: badges, and links to files beside `docs/`."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    text = re.sub(r"^\[!\[.*\n", "", text, flags=re.MULTILINE)
    return without_menu(re.sub(r"\[([^]]+)\]\([A-Z]+\.\w+\)", r"\1", text))


def tour() -> str:
    """The notebook, with what its cells printed and drew."""
    cells = json.loads((ROOT / "docs" / "tour.ipynb").read_text(encoding="utf-8"))["cells"]
    parts = ["[This page as a notebook](tour.ipynb), to run and change."]
    for cell in cells:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        printed = "".join("".join(shown.get("text", "")) for shown in cell["outputs"])
        for shown in (each.get("data", {}) for each in cell["outputs"]):
            if "image/png" in shown:
                picture = "".join(shown["image/png"]).replace("\n", "")
                parts.append(f'<img alt="what this cell draws" src="data:image/png;base64,{picture}">')
            else:
                printed += "".join(shown.get("text/plain", ""))
        if printed:
            parts.append(f"```text\n{printed.rstrip()}\n```")
    return "\n\n".join([parts[1], parts[0], *parts[2:]])


def changelog() -> str:
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](")


def without_menu(text: str) -> str:
    """A page that is alone under its tab, so that a menu beside it would name only itself."""
    return f"---\nhide: [navigation]\n---\n\n{text}"


def documented(name: str, **options: object) -> str:
    """The docstring of a name, taken from the source."""
    settings = "".join(f"      {option}: {str(value).lower()}\n" for option, value in options.items())
    return f"::: {name}\n" + (f"    options:\n{settings}" if options else "")


def rules() -> str:
    lines = [
        "# Rules and their proofs",
        "A rule is an inference and the certificate proved for it. What follows are the docstrings of the code that "
        "runs. On small worlds the tests check every rule by brute force: every patch at every placement.",
        "Σ runs over the positions of the score map, Δ_c is the score of the predicted class ŷ less that of class c, "
        "R(l) is the region of a patch at placement l: the scores that it reaches. Scores lie between lo and hi.",
        "| rule | in one line |\n|---|---|\n"
        + "\n".join(
            f"| [`{name}`](#{name}) | {(kind.__doc__ or '').strip().splitlines()[0]} |" for name, kind in RULES.items()
        ),
    ]
    bare = {"members": False, "show_root_heading": False, "show_root_toc_entry": False}
    for name, kind in RULES.items():
        lines += [f"## `{name}` {{#{name}}}", documented(f"{kind.__module__}.{kind.__qualname__}", **bare)]
    for title, name in FOUNDATIONS.items():
        lines += [f"## {title}", documented(name, **bare)]
    return without_menu("\n\n".join(lines))


def commands() -> str:
    lines = ["# Commands", "`bagcert NAME --help` says the same.", table(["command", "what it does"], command_rows())]
    for name, says in COMMANDS.items():
        lines += [f"## `bagcert {name}` {{#{name}}}", f"{says}."]
        parameters = [each for each in command(name).params if each.name != "help"]
        rows = [[called(each), escaped(each.help or ""), usual(each)] for each in parameters]
        lines.append(table(["argument or option", "what it says", "unless given"], rows))
    return "\n\n".join(lines)


def command_rows() -> list[list[str]]:
    return [[f"[`{name}`](#{name})", escaped(says)] for name, says in COMMANDS.items()]


def called(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = parameter.metavar or parameter.name.upper()
        return f"`{name}`" + ("" if parameter.required else " (optional)")
    return ", ".join(f"`{option}`" for option in (*parameter.opts, *parameter.secondary_opts))


def usual(parameter: Any) -> str:
    value = parameter.default
    if parameter.required:
        return "must be given"
    return "" if value is None or value in (False, (), [], "") or callable(value) else f"`{value}`"


def api() -> str:
    """Every public name: those of a group, then the rest; rules are left to their own page."""
    lines = ["# Python", "What `import bagcert` offers. Rules have [a page of their own](rules.md)."]
    left = [name for name in bagcert.HOMES if name not in {kind.__name__ for kind in RULES.values()}]
    for title, names in {**API, "More": left}.items():
        shown = [name for name in names if name in left]
        left = [name for name in left if name not in shown]
        if shown:
            lines += [f"## {title}", *(documented(f"{bagcert.HOMES[name]}.{name}") for name in shown)]
    return "\n\n".join(lines)


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
