"""The laboratory: judges, measurements, fits and scores, which use the compiler and which it never uses."""
