"""What a report was made from, carried within it, and the report made again from that alone."""
