"""What to do about an operation that mixes positions."""

from torch import fx

from bagcert.threats.seen import arguments

EVALUATE = "Call network.eval() first."
CLASSIFY = (
    "Drop it, and apply the classifier to every position: "
    "scores = classifier(features.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)."
)
COVER = "Cover the whole network by masks instead: bagcert.cover takes any classifier (docs/your-network.md)."
NORMALIZE = "Use nn.BatchNorm2d, or a norm over channels alone."
SHAPE = "Keep rows and columns as axes of their own, or make these two one axis, as in features.flatten(2)."
CHANNELS = "Apply it to channels alone: move them to the end by features.permute(0, 2, 3, 1), or use nn.Conv2d(..., 1)."
REPLACE = "Remove it, or replace it by convolutions and channel-wise operations."

WAYS_OUT = {
    **dict.fromkeys(["adaptive_avg_pool2d", "adaptive_max_pool2d", "amax", "amin", "max", "mean", "sum"], CLASSIFY),
    **dict.fromkeys(["baddbmm", "bmm", "log_softmax", "scaled_dot_product_attention", "softmax"], COVER),
    **dict.fromkeys(["group_norm", "instance_norm", "layer_norm"], NORMALIZE),
    **dict.fromkeys(["flatten", "reshape", "unflatten", "view"], SHAPE),
    **dict.fromkeys(["einsum", "linear", "matmul", "tensordot"], CHANNELS),
    "cat": f"Join channels alone. If this adds a class token: {COVER[0].lower()}{COVER[1:]}",
    "pad": "Pad rows and columns with zeros: padding_mode='zeros'.",
}


def way_out(name: str, node: fx.Node) -> str:
    """One sentence. What happens inside attention, and what evaluation mode would make harmless, has its own."""
    layers = [kind for _, kind in (node.meta.get("nn_module_stack") or {}).values()]
    if "attention" in str(layers[-1:]).lower():
        return COVER
    if name in ("batch_norm", "dropout", "feature_dropout"):
        options = arguments(node)
        if options.get("training") or options.get("train"):
            return EVALUATE
    return WAYS_OUT.get(name, REPLACE)
