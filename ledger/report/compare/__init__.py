"""Several plans side by side, for a review that must choose: figures, causes of differences, a recommendation."""
