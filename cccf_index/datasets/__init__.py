"""Ratings with the ids of their users and items: from files and data frames, split, or synthetic."""

from cccf_index.datasets.ratings import Ratings, find_places, find_rows
from cccf_index.datasets.reading import read_ratings
from cccf_index.datasets.splitting import k_core, split_ratings
from cccf_index.datasets.synthetic import synthetic_ratings
from cccf_index.datasets.tables import from_frame, from_tuples

places, rows_of = find_places, find_rows  # former names, kept for code that imports them

__all__ = ["Ratings", "from_frame", "from_tuples", "k_core", "read_ratings", "split_ratings", "synthetic_ratings"]
