"""The steps of the recipes for Windows."""
