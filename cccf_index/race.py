"""The former name of `cccf_index.comparison`, kept for code that imports it."""

from cccf_index.comparison import *  # noqa: F403
