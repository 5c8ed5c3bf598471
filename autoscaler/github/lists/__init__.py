"""The lists of GitHub: their pages, and the cache of pages."""
