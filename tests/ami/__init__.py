"""Tests of the recipes of machine images in ami/."""
