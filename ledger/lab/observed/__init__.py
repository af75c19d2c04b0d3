"""What PyTorch counts, saves, sends and holds in one step of the reference, rank by rank."""
