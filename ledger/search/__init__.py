"""Every legal layout of a plan, priced as arrays: the space, its pieces, and what is best in it."""
