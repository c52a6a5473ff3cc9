"""What an index holds: cells, segments, states, selectors, and files of arrays."""
