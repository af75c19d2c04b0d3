"""What PyTorch, measurements and publications say about what the books say."""
