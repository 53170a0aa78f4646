"""A run: start, rounds, commits, evaluation, exclusion, finish."""
