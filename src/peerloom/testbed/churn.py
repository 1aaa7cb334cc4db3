"""When which host leaves and joins: a pure function of the plan."""

import random

from peerloom.testbed.plan import Action, Plan, RandomSessions, TimedAction

SESSION_LIMIT = 100_000


def timed_actions(plan: Plan) -> list[TimedAction]:
    """The script's steps and the random sessions' in order of time; equal times keep their order."""
    sessions = random_actions(plan.sessions) if plan.sessions else []
    return sorted([*plan.script, *sessions], key=lambda timed: timed.at_s)


def random_actions(sessions: RandomSessions) -> list[TimedAction]:
    """Leaving and joining in turn, for each host by its own stream of chance.

    A host's times don't depend on which other hosts there are. No host leaves at `until_s` or later; the
    one that is away then still comes back, so that every host ends online.
    """
    found: list[TimedAction] = []
    for host in sessions.hosts:
        chance = random.Random(f"{sessions.seed} {host}")
        now_s = chance.expovariate(1 / sessions.online_s)
        while now_s < sessions.until_s and len(found) < SESSION_LIMIT:
            found.append(TimedAction(now_s, Action("leave", (host,))))
            now_s += chance.expovariate(1 / sessions.offline_s)
            found.append(TimedAction(now_s, Action("join", (host,))))
            now_s += chance.expovariate(1 / sessions.online_s)
    return sorted(found, key=lambda timed: timed.at_s)
