"""Former names of `cccf_index.comparison`, kept for code that imports them; new code uses the new names."""

from cccf_index.comparison import EFFORTS, GRAPH, GRAPH_LIMIT, Found, Method, Vectors
from cccf_index.comparison import MAX_RUNS as RUNS
from cccf_index.comparison import SINGLE_QUERIES as SINGLES
from cccf_index.comparison import TIME_BUDGET as PATIENCE
from cccf_index.comparison import build_binary as binary
from cccf_index.comparison import build_cccf as cccf
from cccf_index.comparison import build_flat as flat
from cccf_index.comparison import build_hnsw as hnsw
from cccf_index.comparison import build_ivf as ivf
from cccf_index.comparison import build_pq as pq
from cccf_index.comparison import drop_seen as unseen
from cccf_index.comparison import measure_recall as recall_by_scores
from cccf_index.comparison import name_threads_key as threads_key
from cccf_index.comparison import time_best as best_seconds
from cccf_index.comparison import time_method as timed
from cccf_index.comparison import time_within_budget as patient_seconds
from cccf_index.comparison import wrap_cccf as of_cccf
from cccf_index.comparison import wrap_faiss as of_faiss

__all__ = [
    "EFFORTS",
    "GRAPH",
    "GRAPH_LIMIT",
    "PATIENCE",
    "RUNS",
    "SINGLES",
    "Found",
    "Method",
    "Vectors",
    "best_seconds",
    "binary",
    "cccf",
    "flat",
    "hnsw",
    "ivf",
    "of_cccf",
    "of_faiss",
    "patient_seconds",
    "pq",
    "recall_by_scores",
    "threads_key",
    "timed",
    "unseen",
]
