"""How an index is searched.

`IndexCCCF.search` takes a snapshot of its state (`storage.state`), decides which queries are codes and which are
real-valued (`index._make_batches`), and goes through

| file | subject |
|---|---|
| `parameters` | the parameters of a caller, and the validated options of one search |
| `queries` | queries of one kind, coded or real-valued, as the kernels take them |
| `scan` | the kernels over all parts of the state and all threads, into one result |
| `alone` | one query without filters: all in one call of a kernel |

`tuning` finds the fastest search of a target recall. The kernels' half of the way is told in `kernels`.
"""
