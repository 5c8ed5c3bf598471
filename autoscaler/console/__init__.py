"""The console's pages: pure functions from the answers of `FleetQueries` to HTML. See docs/console.md."""
