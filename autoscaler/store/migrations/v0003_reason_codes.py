"""Let each row of history have a reason code. Earlier rows have none.

Neither database changes a row for that.
"""

STATEMENTS = ("ALTER TABLE history ADD COLUMN code $text DEFAULT '' NOT NULL",)
