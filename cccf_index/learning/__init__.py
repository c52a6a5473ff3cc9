"""How vectors become codes."""
