"""Let each hold have the code of the provider's error. Earlier holds have none."""

STATEMENTS = ("ALTER TABLE cooldowns ADD COLUMN error $text DEFAULT '' NOT NULL",)
