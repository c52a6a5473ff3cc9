"""How vectors become codes.

| file | subject |
|---|---|
| `plan` | the checked parameters of a quantizer |
| `sides` | the vectors of users and items that are learned from, and the error over all pairs |
| `moments` | second moments of rows, which the error depends on |
| `start` | codes before they are improved |
| `rows` | codes of many rows, and one update of all of them |
| `alternation` | updates of both sides in turn, until the error hardly falls |
| `probes` | example users: items at the head of their lists count more |
| `dense` | the space of dense components |
| `losses` | what the errors of an item's code cost the lists of example queries |
| `allocation` | which item gets which code, by losses and the price of a byte |
| `offers` | the kinds of codes that a budget of bytes is spent on |
| `trials` | which allocation loses the least, on queries that were held out |
| `encoding` | vectors to packed codes in one pass |
| `heads` | queries that are fitted to the head of their own list |
| `history` | the error after each sweep |
"""
