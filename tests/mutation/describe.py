"""What a mutant changes, in words that outlive a new layout: in `rules.rule.own`, `device=x -> device=None`.

Before and after are parsed and followed down to the deepest node of the same kind that holds the whole change. What
both sides have in common is written as `…`, unless it is short.
"""

import ast
import copy

Pair = tuple[ast.AST, ast.AST]  # the same node before and after the change
LEAVES = (
    *(ast.Name, ast.Constant, ast.Attribute, ast.JoinedStr, ast.FormattedValue),
    *(ast.operator, ast.cmpop, ast.boolop, ast.unaryop),
)
OMITTED, SHORT = ast.Name("…"), 24


def place_and_change(way: list[Pair]) -> tuple[str, str]:
    """The definition that a change is in, or the name that it assigns to; and what it is."""
    place = definition(way) if in_function(way) else ".".join(filter(None, (definition(way), *map(assigned, way))))
    one, other = [pair for pair in way if type(pair[0]) is type(pair[1]) and not isinstance(pair[0], LEAVES)][-1]
    return place, f"{written(one, other)} -> {written(other, one)}"


def changed_function(way: list[Pair]) -> str | None:
    """The function or method whose body is all that changes, if there is one."""
    function = in_function(way)
    return definition(way) if function and is_same(*map(without_body, function)) else None


def definition(way: list[Pair]) -> str:
    """The classes on the way and the first function, as Python qualifies its name."""
    function = in_function(way)
    outer = way[: way.index(function) + 1] if function else way
    return ".".join(node.name for node, _ in outer if isinstance(node, ast.FunctionDef | ast.ClassDef))


def in_function(way: list[Pair]) -> Pair | None:
    return next((pair for pair in way if isinstance(pair[0], ast.FunctionDef)), None)


def without_body(function: ast.AST) -> ast.AST:
    """What is read when the function is defined."""
    shown = copy.copy(function)
    shown.__dict__["body"] = []
    return shown


def way_to_change(before: ast.AST, after: ast.AST) -> list[Pair]:
    """From the whole to the smallest pair of nodes that differs."""
    way, pair = [], (before, after)
    while True:
        way.append(pair)
        mine, theirs = (children(node) for node in pair)
        differing = [each for each in zip(mine, theirs, strict=False) if not is_same(*each)]
        if len(mine) != len(theirs) or len(differing) != 1:
            return way
        pair = differing[0]


def children(node: ast.AST) -> list[ast.AST]:
    return list(ast.iter_child_nodes(node))


def is_same(one: ast.AST, other: ast.AST) -> bool:
    return ast.dump(one) == ast.dump(other)


def assigned(pair: Pair) -> str:
    """What an assignment outside of functions gives a value to."""
    node, _ = pair
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return target.id if isinstance(target, ast.Name) else ""


def written(node: ast.AST, other: ast.AST) -> str:
    """The source of one side on one line."""
    common = {ast.dump(each) for each in children(other)}
    shown = copy.copy(node)
    for name, value in ast.iter_fields(node):
        values = value if isinstance(value, list) else [value]
        cut = [shortened(each) if isinstance(each, ast.AST) and ast.dump(each) in common else each for each in values]
        setattr(shown, name, cut if isinstance(value, list) else cut[0])
    return " ".join(ast.unparse(ast.fix_missing_locations(shown)).split())


def shortened(node: ast.AST) -> ast.AST:
    """A part that both sides have in common."""
    if isinstance(node, ast.stmt):
        return ast.Expr(ast.Constant(...))
    if not isinstance(node, ast.expr | ast.keyword) or len(ast.unparse(node)) <= SHORT:
        return node
    if isinstance(node, ast.keyword):
        return ast.keyword(node.arg, OMITTED)
    return ast.Attribute(OMITTED, node.attr) if isinstance(node, ast.Attribute) else OMITTED
