"""How an index is searched: parameters, queries, scans over parts and threads, tuning."""
