"""The next version of the controller, as a program: one more migration, and another agent."""

from autoscaler.app import agent_file
from autoscaler.store import migrations
from tests.store.next_schema import NEXT_SCHEMA, STATEMENTS


def main() -> None:
    """Run `lab.serve`, which reads the migrations when it is imported."""
    agent = agent_file.build_agent() + b"# of the next version\n"
    agent_file.own_agent = lambda: agent  # type: ignore[assignment]
    migrations.MIGRATIONS = {**migrations.MIGRATIONS, NEXT_SCHEMA: STATEMENTS}  # type: ignore[misc]
    from lab.serve import command

    command()


if __name__ == "__main__":
    main()
