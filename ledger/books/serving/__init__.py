"""The books of a plan that serves: passes priced, sequences in flight, memory, totals."""
