"""Create the table of what the time of machines bought. Days before the upgrade have no rows."""

STATEMENTS = (
    """
    CREATE TABLE usage (
        day INTEGER NOT NULL,
        provider $text NOT NULL,
        sku $text NOT NULL,
        repository $text NOT NULL,
        use $text NOT NULL,
        seconds $real NOT NULL,
        dollars $real NOT NULL,
        times INTEGER NOT NULL,
        PRIMARY KEY (day, provider, sku, repository, use)
    ) $by_key
    """,
)
