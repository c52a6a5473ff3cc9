"""Every numba kernel, and what they share. Nothing here imports the rest of the package."""
