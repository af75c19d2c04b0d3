"""What a change of a repository does to its plans: which are affected, how, by which input; in print."""
