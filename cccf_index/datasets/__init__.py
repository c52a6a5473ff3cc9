"""Ratings with the ids of their users and items: read from files, split, or synthetic."""

from cccf_index.datasets.ratings import Ratings, find_places, find_rows
from cccf_index.datasets.reading import read_ratings
from cccf_index.datasets.splitting import k_core, split_ratings
from cccf_index.datasets.synthetic import synthetic_ratings

places, rows_of = find_places, find_rows  # former names, kept for code that imports them

__all__ = ["Ratings", "k_core", "read_ratings", "split_ratings", "synthetic_ratings"]
