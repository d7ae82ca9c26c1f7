"""The footprint of any network, read from the operations it runs; layers that mix positions are refused by name."""

import operator

import torch
from torch import Tensor, fx, nn

from bagcert.errors import UsageError, first_line
from bagcert.threats.footprint import Footprint
from bagcert.threats.operations import FILLED, HANDLERS, OF_FIRST_ARGUMENT
from bagcert.threats.seen import Seen, arguments
from bagcert.threats.threat import Size
from bagcert.threats.traced_network import Traced
from bagcert.threats.ways_out import way_out

MOST_IMAGES = 65_535
MIXES = "mixes them, or may do so"
ATTENDS = "is attention, which mixes them"


def trace_footprint(module: nn.Module, image_size: Size, channels: int) -> Footprint:
    """The footprint of `module`, from images [1 channels h w] to scores [1 k i j], by torch.export."""
    return trace(module, image_size, channels).footprint


def trace(module: nn.Module, image_size: Size, channels: int) -> Traced:
    """The operations of `module` and its footprint; refuses what mixes positions."""
    like = example_weight(module)
    try:
        example = torch.zeros(2, channels, *image_size, dtype=like.dtype, device=like.device)
    except RuntimeError as error:
        raise UsageError(
            f"Images of {channels}x{image_size[0]}x{image_size[1]} do not fit into memory. "
            "Give image_size and channels as the network takes them."
        ) from error
    try:
        # For any number of images: code that depends on their number may look at more than one. Beyond MOST_IMAGES,
        # torch itself uses another kernel on a GPU.
        images = torch.export.Dim("images", max=MOST_IMAGES)
        program = torch.export.export(module, (example,), dynamic_shapes=({0: images},))
    except Exception as error:
        if "Constraints violated" in str(error):
            raise UsageError(
                "A network must treat any number of images alike, but this one fixes or counts them. "
                "Use images.shape[0], not len(images), and nothing across images."
            ) from error
        if not runs(module, example):
            raise UsageError(
                f"The network fails on {list(example.shape)} ({first_line(error)}). "
                "Give image_size and channels as it takes them."
            ) from error
        raise UsageError(
            f"The network cannot be traced by torch.export on {list(example.shape)} ({first_line(error)}). "
            "Remove branches that depend on pixel values."
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
    for node in program.graph.nodes:
        if any(from_network(written) for written in written_into(node) if written not in seen):
            raise refusal(plain_name(node), node, "changes a weight, a buffer or a constant of the network")
    return Traced(program, finished(program.graph.output_node(), seen))


def runs(module: nn.Module, example: Tensor) -> bool:
    """Whether the network takes such images at all."""
    try:
        with torch.no_grad():
            module(example)
    except Exception:
        return False
    return True


def example_weight(module: nn.Module) -> Tensor:
    """A weight with the type and device that images need."""
    return next((weight for weight in module.parameters() if weight.is_floating_point()), torch.zeros(()))


def finished(node: fx.Node, seen: dict[fx.Node, Seen]) -> Footprint:
    """The footprint of the network's only output, which must be a score map."""
    outputs = [value for value in node.args[0] if isinstance(value, fx.Node)]  # type: ignore[union-attr]
    shape = [dim if isinstance(dim, int) else "images" for dim in outputs[0].meta["val"].shape] if outputs else []
    if len(outputs) != 1 or outputs[0] not in seen or len(shape) != 4 or seen[outputs[0]].axes != (0, 2, 3):
        cure = "End it before it pools or flattens." if len(outputs) == 1 else "Return the score map alone."
        raise UsageError(
            "The network must have one output of shape [images, classes, rows, columns], but has "
            f"{len(outputs)} with shape [{', '.join(map(str, shape))}]. {cure}"
        )
    return seen[outputs[0]].footprint


def follow(node: fx.Node, seen: dict[fx.Node, Seen]) -> Seen | None:
    """What the result of one operation sees; None if it does not depend on the image."""
    sources = [seen[source] for source in inputs(node) if source in seen]
    if node.target is operator.getitem:
        return sources[0] if sources else None
    name = plain_name(node)
    if "sym_size" in str(node.target):
        return None  # the number of images is no pixel
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        raise refusal(name, node, "is a block of its own, such as torch.no_grad() or torch.cond, which is not traced")
    if not isinstance(node.target, torch._ops.OpOverload):
        if sources:
            raise refusal(node.target.__name__, node, MIXES)  # type: ignore[union-attr]
        return None  # arithmetic on sizes
    random = torch.Tag.nondeterministic_seeded in node.target.tags
    if random and name not in HANDLERS:  # dropout has a handler that looks at its mode
        attends = sources and "attention" in name and not arguments(node).get("dropout_p")
        raise refusal(name, node, ATTENDS if attends else "changes its result from call to call")
    if name.removeprefix("new_").startswith(("empty", "resize")):
        raise refusal(name, node, "returns what its memory held before: perhaps an earlier image")
    if name in FILLED and node.target.namespace == "aten":
        return None
    found = None
    if sources:
        handler = HANDLERS.get(name) if node.target.namespace == "aten" else None
        found = handler(node, sources) if handler else None
        if found is None or (name in OF_FIRST_ARGUMENT and node.args[0] not in seen):
            raise refusal(name, node, MIXES)
    if found is not None and not safely_written(node, seen, found):
        raise refusal(name, node, "writes into a tensor that then sees more, or into the image or a constant")
    return found


def plain_name(node: fx.Node) -> str:
    """The name of an operation without its library, its overload and the underscore of in-place ones."""
    return str(node.target).removeprefix("aten.").split(".")[0].removesuffix("_")


def inputs(node: fx.Node) -> list[fx.Node]:
    """What an operation takes, with repetitions: an image may also be its own kernel."""
    found: list[fx.Node] = []
    fx.map_arg((node.args, node.kwargs), found.append)
    return found


def refusal(name: str, node: fx.Node, why: str) -> UsageError:
    cure, inside = way_out(name, node), (node.meta.get("nn_module_stack") or {}).values()
    if why == MIXES and any(str(kind).endswith(".MultiheadAttention") for _, kind in inside):
        name, why = "MultiheadAttention", ATTENDS
    return UsageError(f"Layers must keep positions apart, but {name} in layer '{layer_name(node)}' {why}. {cure}")


def safely_written(node: fx.Node, seen: dict[fx.Node, Seen], found: Seen) -> bool:
    """Does everything that was found about an input stay true if an operation writes into it?

    Yes, if the input sees no more than before: then whatever shares its memory sees no more either. The image itself
    and constants of the network must not be written at all.
    """
    for source in written_into(node):
        if source not in seen or source.op == "placeholder":
            return False
        before = seen[source].footprint.branches
        if not all(any(branch.inside(old) for old in before) for branch in found.footprint.branches):
            return False
    return True


def written_into(node: fx.Node) -> list[fx.Node]:
    """The inputs that an operation writes into."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return []
    options, found = arguments(node), list[fx.Node]()
    for each in node.target._schema.arguments:
        if each.alias_info is not None and each.alias_info.is_write:
            fx.map_arg(options[each.name], found.append)  # one tensor, a list of them, or none
    return found


def from_network(node: fx.Node) -> bool:
    """May this tensor share memory with what the network holds? Only copies and new tensors certainly do not."""
    name = plain_name(node)
    if name in ("clone", "lift_fresh_copy") or name.endswith("_like") or name.startswith("new_"):
        return False
    return node.op in ("placeholder", "get_attr") or any(from_network(source) for source in inputs(node))


def layer_name(node: fx.Node) -> str:
    """The dotted name of the innermost module that runs this operation."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return (stack[-1][0] if stack else "") or "the network itself"
