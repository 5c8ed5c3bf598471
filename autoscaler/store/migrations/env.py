"""What alembic runs for each upgrade: on the connection that `store.schema` hands over."""

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
