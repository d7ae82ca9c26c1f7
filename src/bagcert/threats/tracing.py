"""The footprint of any network, read from the operations it runs; layers that mix positions are refused by name."""

import operator

import torch
from torch import Tensor, fx, nn

from bagcert.errors import UsageError
from bagcert.threats.footprint import Footprint
from bagcert.threats.operations import HANDLERS, Seen, arguments
from bagcert.threats.threat import Size


def trace_footprint(module: nn.Module, image_size: Size, channels: int) -> Footprint:
    """The footprint of `module`, from images [1 channels h w] to scores [1 k i j], by torch.export."""
    example = torch.zeros(2, channels, *image_size, dtype=next(iter(floats(module)), torch.zeros(())).dtype)
    try:
        program = torch.export.export(module, (example,))
    except Exception as error:
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(
            f"expected a network that torch.export can trace on {list(example.shape)}, got: {first_line}; "
            "remove branches that depend on pixel values"
        ) from error
    seen: dict[fx.Node, Seen] = {}
    inputs = set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in inputs:
            seen[node] = Seen(Footprint.identity(image_size))
        elif node.op == "call_function":
            found = follow(node, seen)
            if found is not None:
                seen[node] = found
    return finished(program.graph.output_node(), seen)


def floats(module: nn.Module) -> list[Tensor]:
    return [weight for weight in module.parameters() if weight.is_floating_point()]


def finished(node: fx.Node, seen: dict[fx.Node, Seen]) -> Footprint:
    """The footprint of the network's only output, which must be a score map."""
    outputs = [value for value in node.args[0] if isinstance(value, fx.Node)]  # type: ignore[union-attr]
    shape = list(outputs[0].meta["val"].shape) if outputs else []
    if len(outputs) != 1 or outputs[0] not in seen or len(shape) != 4 or seen[outputs[0]].axes != (0, 2, 3):
        raise UsageError(
            f"expected one output of shape [images, classes, rows, columns], got {len(outputs)} with shape {shape}; "
            "end the network before it pools or flattens"
        )
    return seen[outputs[0]].footprint


def follow(node: fx.Node, seen: dict[fx.Node, Seen]) -> Seen | None:
    """What the result of one operation sees; None where it does not depend on the image."""
    sources = [seen[source] for source in node.all_input_nodes if source in seen]
    if not sources:
        return None
    if node.target is operator.getitem:
        return sources[0]
    name = str(node.target).removeprefix("aten.").split(".")[0].removesuffix("_")
    handler = HANDLERS.get(name)
    found = handler(node, sources) if handler else None
    if found is None or not safely_written(node, seen, found):
        raise UsageError(
            f"expected layers that keep positions apart, got {name} in layer '{layer_name(node)}', which mixes them or "
            "is not known not to; remove it, or replace it by convolutions and channel-wise operations"
        )
    return found


def safely_written(node: fx.Node, seen: dict[fx.Node, Seen], found: Seen) -> bool:
    """Does an operation that writes into its input leave all that was said of that input true?

    It does where the input sees no more than before, or where nobody else looks at it.
    """
    options = arguments(node)
    for argument in node.target._schema.arguments:  # type: ignore[union-attr]
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        source = options[argument.name]
        if not isinstance(source, fx.Node) or source not in seen:
            return False  # a constant that would come to depend on the image
        before = seen[source].footprint
        same = all(any(branch.inside(old) for old in before.branches) for branch in found.footprint.branches)
        if not same and (len(source.users) > 1 or is_view(source)):
            return False
    return True


def is_view(node: fx.Node) -> bool:
    """Does this tensor share its memory with another one?"""
    if node.op != "call_function" or node.target is operator.getitem:
        return True
    return any(result.alias_info is not None for result in node.target._schema.returns)  # type: ignore[union-attr]


def layer_name(node: fx.Node) -> str:
    """The dotted name of the innermost module that runs this operation."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return (stack[-1][0] if stack else "") or "the network itself"
