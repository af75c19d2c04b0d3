"""Published runs: each row of a table becomes a plan, is compiled, and compared with what was measured."""
