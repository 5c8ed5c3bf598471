"""Let each machine have the host on which it runs. That of machines from before is read from a listing.

The placement is an object in each record, a JSON object.
"""

STATEMENTS = (
    'UPDATE machines SET record = replace(record, \'"placement":{\', \'"placement":{"host":"",\')',
)
