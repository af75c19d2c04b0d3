"""The report's charts: each a pure function from data to the text of a picture."""
