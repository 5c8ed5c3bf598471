"""The versions of what images contain, and the commands that check, build and print them."""
