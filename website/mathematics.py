"""Formulas of docstrings as MathML: the proofs are written in plain Unicode, a browser draws them without a script.

A line that is a formula (`Certificate:   Σ Δ_c > 0`, or indented and with a mathematical sign) is displayed. In prose,
runs of symbols are drawn where they stand: `Σ Δ_c`, `R(l)`, `c ≠ ŷ`. Code is left alone.
"""

import re
from typing import Any

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor

SIGNS = {
    "Σ": r"\sum", "Δ": r"\Delta", "ŷ": r"\hat{y}", "ε": r"\varepsilon", "γ": r"\gamma", "𝓛": r"\mathcal{L}",
    "∪": r"\cup", "∉": r"\notin", "∈": r"\in", "≠": r"\ne", ">=": r"\ge", "<=": r"\le", ">": ">", "<": "<", "=": "=",
    "+": "+", "-": "-", "/": "/", "\\": r"\backslash", "±": r"\pm", "|": "|", "⁺": "^{+}", "·": r"\cdot", "'": "'",
    "≥": r"\ge", "≤": r"\le", "×": r"\times", "∩": r"\cap", "∅": r"\emptyset", "⊆": r"\subseteq",
}  # fmt: skip
NAMES = {"max", "min"}  # upright, and with what follows below them
TOKEN = re.compile(r">=|<=|[A-Za-z]+\d*|\d+(?:\.\d+)?|\s+|.")

# One symbol with its subscripts, superscripts and arguments; then runs of symbols joined by operators.
SUB = r"(?:[_^](?:\{[^{}\n]*\}|[A-Za-zŷ0-9]+)|⁺|'(?!s))"
ARGUMENT = r"\([A-Za-z](?:\d|\^wc\([a-z]\))?\)"
SYMBOL = r"(?!(?<=\d )[sM](?![\w^_(]))"  # 2.9 M, 30 s: millions and seconds
SYMBOL += (
    rf"(?:[ΣΔŷεγ𝓛]|(?<![\w'’./-])[A-Za-z](?![\w'’-]|\.\w)|(?<!\w)(?:max|min|UB|LB|[A-Za-z]\d?)(?={SUB}|{ARGUMENT})|"
)
SYMBOL += rf"(?<!\w)[mMRl]\d\b)(?:{SUB}|{ARGUMENT})*"
TERM = rf"(?:\|{SYMBOL}(?: \\ {SYMBOL})?\||\({SYMBOL}(?:, {SYMBOL})*\)|{SYMBOL}|(?<![\w.])\d+(?![\w%]|\.\d))"
RUN = rf"{TERM}(?:[ \n](?:(?:[=<>+/\\∪∈∉≠±-]|>=|<=)[ \n])?{TERM})*"
ALONE = re.compile(r"[aAI]|\d+|[aAI]?(?:[ \n]\d+)+")  # words and numbers, not symbols
HEADED = re.compile(r"(Certificate|Detectable|Condition [\d.]+):   (.*[^\w\s.,:`].*)")
INDENTED = re.compile(r" {4}(.*(?:[ΣΔŷε]|\b[A-Z]+_[a-z]\b).*)")
OPENING = re.compile(r"(Inference|Proof|Notation|Certificate)(?=[.,:] )")


def latex(text: str) -> str:
    """LaTeX for a formula in plain Unicode. Words stay words; wide gaps stay gaps."""
    parts: list[str] = []
    words: list[str] = []
    for token in TOKEN.findall(text):
        if token.isalpha() and token.isascii() and len(token) > 1 and token not in NAMES:
            words.append(token)
            continue
        if token.isspace() and words:
            words.append(" " if len(token) < 3 else r"\quad ")
            continue
        parts += said(words)
        words = []
        numbered = re.fullmatch(r"([A-Za-z])(\d+)", token)
        if numbered:
            parts.append(f"{numbered[1]}_{{{numbered[2]}}}")
        elif token.isspace():
            parts.append(r"\quad " if len(token) > 2 else " ")
        elif token in NAMES:
            parts.append(rf"\{token}")
        else:
            parts.append(SIGNS.get(token, token))
    # The space keeps a command from running into the letter after it.
    return re.sub(r"\^wc", r"^{wc}", " ".join([*parts, *said(words)]).replace(" ^", "^").replace(" _", "_"))


def said(words: list[str]) -> list[str]:
    text = "".join(words)
    if not text.strip():
        return []
    return [rf"\text{{{text.strip()}}}" if len(words) == 1 else rf"\text{{ {text.strip()} }}"]


def mathml(text: str, display: str = "inline") -> str:
    written: str = convert(latex(text), display=display)
    return written


class Formulas(Preprocessor):
    """Lines that are formulas, doctests that are code, and the words that open a proof in bold."""

    def run(self, lines: list[str]) -> list[str]:
        out: list[str] = []
        fenced = tested = False
        for line in lines:
            if line.startswith("```"):
                fenced = not fenced
            elif not fenced and line.startswith(">>> ") and not tested:
                out.append("```pycon")
                tested = True
            elif tested and not line.strip():
                out.append("```")
                tested = False
            if fenced or tested:
                out.append(line)
                continue
            headed, indented = HEADED.fullmatch(line), INDENTED.fullmatch(line)
            if headed:
                out += [f"**{headed[1]}.**", "", self.shown(headed[2]), ""]
            elif indented and not re.search(r"[`─]|\w\.\w", line):
                out += ["", self.shown(indented[1].rstrip(".,")), ""]
            else:
                out.append(OPENING.sub(r"**\1**", line, count=1) if OPENING.match(line) else line)
        return [*out, "```"] if tested else out

    def shown(self, formula: str) -> str:
        stored: str = self.md.htmlStash.store(f'<div class="formula">{mathml(formula, "block")}</div>')
        return stored


class Symbols(InlineProcessor):
    def handleMatch(self, m: "re.Match[str]", data: str) -> tuple[str | None, int | None, int | None]:
        if ALONE.fullmatch(m[0]):
            return None, None, None
        parts = re.split(r" (?=[=<>])", re.sub(r"\s+", " ", m[0]))  # a browser breaks lines between formulas only
        return " ".join(self.md.htmlStash.store(mathml(part)) for part in parts), m.start(0), m.end(0)


class Powers(InlineProcessor):
    """Powers of numbers, 2^-53."""

    def handleMatch(self, m: "re.Match[str]", data: str) -> tuple[str, int, int]:
        return self.md.htmlStash.store(f"{m[1]}<sup>{m[2].replace('-', '−')}</sup>"), m.start(0), m.end(0)


class Signs(InlineProcessor):
    """The signs <= and >= where they are in no formula."""

    def handleMatch(self, m: "re.Match[str]", data: str) -> tuple[str, int, int]:
        return {"<=": "≤", ">=": "≥"}[m[0]], m.start(0), m.end(0)


class Shapes(InlineProcessor):
    """Shapes of tensors, [b k i j], as code."""

    def handleMatch(self, m: "re.Match[str]", data: str) -> tuple[str, int, int]:
        return self.md.htmlStash.store(f"<code>{m[0]}</code>"), m.start(0), m.end(0)


class Mathematics(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        md.preprocessors.register(Formulas(md), "formulas", 29)  # before fences are read (25)
        md.inlinePatterns.register(Shapes(r"\[[a-z](?: [a-z0-9]+)+\](?!\()", md), "shapes", 176)
        md.inlinePatterns.register(Powers(r"(?<![\w.])(\d+)\^(-?\d+)", md), "powers", 86)
        md.inlinePatterns.register(Symbols(RUN, md), "symbols", 85)  # after code, links and tags (90)
        md.inlinePatterns.register(Signs(r"(?<= )[<>]=(?= )", md), "signs", 84)


def makeExtension(**settings: Any) -> Mathematics:
    return Mathematics(**settings)
