"""How vectors become codes: start, update rows, alternate between users and items."""
