"""Published runs: a table of them is read, each row becomes a plan, is compiled, and compared with what was measured."""
