"""Runs the migrations on the connection of `store.schema`. alembic executes this file."""

from alembic import context

from autoscaler.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
