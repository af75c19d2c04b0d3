"""Memory over a step: its moments, the stocks that are alive at each, and the one at which they are fullest."""
