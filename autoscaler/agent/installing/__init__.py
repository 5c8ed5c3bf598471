"""Installs software on the machine: programs, packages, downloads, and the runner on a stock image."""
