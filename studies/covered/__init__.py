"""Cover trained ImageNet networks by masks, and certify real photographs."""
