"""Adapters of cccf-index for the frameworks that recommender engineers use; each module only translates.

| module | what it offers |
|---|---|
| `implicit` | `CCCFModel`, a recommender of implicit built on a matrix factorization |
| `rectools` | `CCCFRanker`, and `with_cccf`, which makes a fitted vector model use it |
| `cornac` | `CCCFANN`, next to Cornac's Annoy, Faiss and HNSWLib wrappers |
| `lenskit` | `CCCFScorer` and `CCCFRecommender`, components of a pipeline; `cccf_pipeline` |
| `faiss` | convert indexes and codes to faiss, and binary codes from faiss |
| `matlab` | read codes of the authors' MATLAB code |
| `options` | `CodeOptions`, the options that `implicit`, `rectools` and `cornac` share |
"""
