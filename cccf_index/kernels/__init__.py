"""Every numba kernel, and what they share. Nothing here imports the rest of the package.

From the outside in, a search goes through

| file | subject |
|---|---|
| `entries` | what Python calls to search: flat arguments, one function for each kind of queries |
| `search` | the order in which blocks of 64 rows are looked at |
| `budgets` | which blocks may be looked at: all, or those of the most used items |
| `bounds` | how good a block can be at most, so that most are skipped |
| `sketches` | queries prepared for 16-bit estimates of scores |
| `block` | the estimates of 64 rows at a time, in LLVM's vectors |
| `dense` | the same for rows with a dense component: `dense_strips` of a block, `dense_products` of single rows |
| `filters` | deleted and excluded items |
| `collection` | rows that may be good enough, and what the k best of them reach at least |
| `scoring` | exact scores of the few rows that are left |
| `sorting` | those in order: score descending, then id ascending |
| `heaps` | the best items of each query over several segments |

They share `stored` (weights and biases of rows), `calls` (queries, filters and tables of one call as a record),
`layout` (segments as records), `memory` (access by address), `limits` (why no sum overflows), `lookup` (binary search,
ids), `registers` (LLVM's vectors of small numbers), `decorators` and `inner` (how kernels are compiled) and `cache`
(how compiled kernels are kept on disk;
`cache_places`: in which folders). Queries are made by `query_vectors` (the map of an index of vectors), `query_codes`
(which vectors are codes) and `query_weights` (their integer weights). Other kernels are `refinement` (inner products
with full vectors), `building` (distances from cell centres) and, for training and encoding, `linear_algebra`,
`rating_rows`, and `code_rows` with `row_updates` (the steps of one row), `row_vectors` (their inner loops, in LLVM's
vectors), `probe_pairs` (items at the head of probes' lists) and `dense_rows` (values of dense components, and which
errors change lists).
"""
