"""Train and compare networks on photographs, and fill docs/imagenet.md."""
