"""Which modules may be imported to build a model whose file names them."""

from collections.abc import Collection
from dataclasses import dataclass

BY_NODE_OWNER = "the owner of the node says --inference-modules={module}"
BY_USER = "set PEERLOOM_MODULES={module} in this process's environment"


@dataclass(frozen=True)
class TrustedModules:
    """`names` of modules whose tasks' models may be built here besides the built-in tasks'.

    Whoever wrote a model's file chose the name in it, and importing a module runs it. `remedy` is what
    somebody who trusts {module} has to do.
    """

    names: Collection[str]
    remedy: str

    def why_not(self, task: str) -> str:
        """Why no model of this task ("module:Class", or a name of ours) is built here; empty if it is."""
        module, colon, _ = task.partition(":")
        if not colon or module in self.names:
            return ""
        return (
            f"its file says that it is built by {task!r}, and nobody here said that {module!r} may be "
            f"imported for that; whoever trusts it: {self.remedy.format(module=module)}"
        )
