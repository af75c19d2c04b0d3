"""A step replayed through a model of PyTorch's caching allocator: what it allocates, and what it reserves for that."""
