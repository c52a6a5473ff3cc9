"""cccf-index under the frameworks that recommender engineers use; each module only translates.

| module | what it offers |
|---|---|
| `implicit` | `CCCFModel`, a recommender of implicit over a matrix factorization |
| `rectools` | `CCCFRanker`, and `with_cccf`, which puts it under a fitted vector model |
| `cornac` | `CCCFANN`, beside Cornac's Annoy, Faiss and HNSWLib |
| `lenskit` | `CCCFScorer` and `CCCFRecommender`, components of a pipeline; `cccf_pipeline` |
| `faiss` | indexes and codes to faiss, binary codes from faiss |
| `matlab` | codes of the authors' MATLAB code |
"""
