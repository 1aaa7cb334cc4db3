"""The table of nodes is called the selector's: the registry may have one in the same database."""

from alembic import op

from peerloom.services.selector.tables import nodes, nodes_table

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Renames it where it still has its first name."""
    if nodes_table(op.get_bind()) != nodes.name:
        op.rename_table(nodes_table(op.get_bind()), nodes.name)


def downgrade() -> None:
    """Leaves it: the migrations before this one know both names."""
