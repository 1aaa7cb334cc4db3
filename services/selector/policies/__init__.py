"""The ways to choose, by name. Each is a pure module of its own behind `interface.Policy`."""

import importlib
from collections.abc import Mapping

from peerloom.errors import ConfigurationError, NotFoundError
from peerloom.services.selector.policies.ant_colony import AntColonyPolicy
from peerloom.services.selector.policies.beta import BetaPolicy
from peerloom.services.selector.policies.interface import Policy
from peerloom.services.selector.policies.particle_swarm import ParticleSwarmPolicy
from peerloom.services.selector.policies.random import RandomPolicy
from peerloom.services.selector.policies.round_robin import RoundRobinPolicy
from peerloom.services.selector.policies.survival import SurvivalPolicy
from peerloom.services.selector.policies.thesis_fixed import ThesisFixedPolicy
from peerloom.services.selector.policies.thesis_printed import ThesisPolicy

_ALL: tuple[Policy, ...] = (
    AntColonyPolicy(),
    BetaPolicy(),
    ParticleSwarmPolicy(),
    RandomPolicy(),
    RoundRobinPolicy(),
    SurvivalPolicy(),
    ThesisPolicy(),
    ThesisFixedPolicy(),
)
POLICIES: dict[str, Policy] = {policy.name: policy for policy in _ALL}


def find_policy(name: str, policies: Mapping[str, Policy] = POLICIES) -> Policy:
    """The policy of this name; thesis-fixed may name its repairs behind a colon.

    Raises NotFoundError with the nearest names.
    """
    stem, colon, options = name.partition(":")
    policy = policies.get(name) or policies.get(stem)
    if policy is None or (colon and policy.name != name and not isinstance(policy, ThesisFixedPolicy)):
        raise NotFoundError.of_name("policy", name[:80], policies)
    if colon and isinstance(policy, ThesisFixedPolicy):
        return policy.with_repairs(options.split(","))
    return policy


def load_policy(path: str) -> Policy:
    """A policy of the user's own, from `module:Class`; runs the module's code, so never from a request.

    Raises ConfigurationError when there is no such class, or when it isn't a policy.
    """
    module, _, attribute = path.partition(":")
    try:
        policy = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"the policy {path!r} can't be loaded: {error}. Give module:Class of a class without arguments, "
            "in a module that Python finds."
        ) from error
    missing = [
        part for part in ("name", "description", "source", "select", "explain") if not hasattr(policy, part)
    ]
    if missing:
        raise ConfigurationError(f"the class {path} is no policy: it has no {', '.join(missing)}.")
    return policy  # type: ignore[no-any-return]  # it has all that a Policy has
