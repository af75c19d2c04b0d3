"""What a schema cannot say of a plan: rules between its parts, by theme, and the table that lists them."""
