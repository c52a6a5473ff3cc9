"""What an index holds, from the outside in.

| file | subject |
|---|---|
| `state` | all items at one moment: parts with their deletions, and batches not grouped yet |
| `selectors` | which items a search may return |
| `rounding` | weights and biases of new items, rounded at the scale of the index |
| `item_rows` | items as plain arrays |
| `segment` | an immutable run of items, as the kernels read it |
| `groups`, `cells` | items by their components, and around centres |
| `precisions`, `dense_tables` | values of dense components in bytes and half bytes, and the tables that hold them |
| `vectors`, `id_map` | full vectors of items for re-ranking, and which row belongs to an id |
| `container`, `verification` | files of arrays with checksums, and checks of segments that come from files |
"""
