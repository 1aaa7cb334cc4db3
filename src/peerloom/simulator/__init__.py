"""Choosing nodes, simulated: discrete events, no sleeping, the same seed gives the same bytes.

    from peerloom.simulator import Scenario, compare, simulate

    report = compare(Scenario(population="volunteers-1000", rounds=200), ["random", "survival"], [4], seeds=5)

The policies are the selector's own objects and so are the rules that turn facts into beliefs; what is
simulated is everything around them: hosts that come and go, accept, refuse and lie, and jobs that run on
them.

    scenario    what is simulated, checked           populations  hosts by name, strengths by power law
    hosts       one machine and its behaviour        sessions     when it comes and goes; trace reads a file
    world       the events, in a heap                gang         a job while it runs
    book        what the selector knows              oracle       what nobody can know
    bound       what no choice can exceed            baselines    choices that know speed
    waiting     a job on its way to nodes            ablations    survival without one of its terms
    simulation  one run                              figures      a run in numbers, many runs with intervals
    runs        many, in several processes           report       policies side by side
    chance      repeatable numbers without state
"""

from peerloom.simulator.figures import UNITS, figures
from peerloom.simulator.populations import POPULATIONS, Population, population
from peerloom.simulator.report import Estimate, PolicyReport, Report, compare
from peerloom.simulator.rounds import Round
from peerloom.simulator.runs import Run, runs_of_seeds
from peerloom.simulator.scenario import Scenario, usual
from peerloom.simulator.simulation import policy_names, simulate

__all__ = [
    "POPULATIONS",
    "UNITS",
    "Estimate",
    "PolicyReport",
    "Population",
    "Report",
    "Round",
    "Run",
    "Scenario",
    "compare",
    "figures",
    "policy_names",
    "population",
    "runs_of_seeds",
    "simulate",
    "usual",
]
